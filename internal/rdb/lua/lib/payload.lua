-- payload finds the parts of a payload that scripts need. It does not decode JSON: cjson turns [] into {}
-- and rounds large integers.
--
-- DEFINES  parts(find, byte, sub, match, quickname): the functions
--          stringend(s, i, slash): index of the quote that ends a string, of the next backslash;
--          closing(s, i): index of the bracket that ends a value, whether that is spaced;
--          squeeze(s): s without white space outside of strings;
--          envelope(s): class, arguments, whether these are spaced, wrapper; nil for anything else than a job;
--          lockname(payload, style): what jobs have in common that exclude each other;
--          spaced(text): whether JSON may hold white space outside of strings, or escapes;
--          quickname(before, payload, tight): the first rule of lockname, a name or nil
-- NEEDS    base
-- KEYS     none
-- COST     no command; O(bytes)

-- parts returns the functions. Each definition costs time in each call of a script, more so with
-- upvalues. Most calls of the hot path therefore only define parts, which has no upvalues.
local function parts(find, byte, sub, match, quickname)
  local stringend, closing, squeeze, object, unwrapped, envelope, unescape, lockname, leap

  -- stringend returns the index of the quote that ends the string at i, or nil, and of the next
  -- backslash. slash is the last backslash found so far: payloads have few, so each is searched once.
  function stringend(s, i, slash)
    i = i + 1
    local a = find(s, '"', i, true)
    while a do
      if slash < i then slash = find(s, '\\', i, true) or math.huge end
      if a < slash then return a, slash end
      i = slash + 2
      if a < i then a = find(s, '"', i, true) end
    end
    return nil, slash
  end

  -- leap is closing for long text. Plain searches cost almost nothing per byte, so it leaps from mark to
  -- mark, and searches each kind of mark again once it has passed it.
  function leap(s, i)
    local find, far = find, math.huge
    local quote, open, close, brace, unbrace, slash, depth, spaced = 0, 0, 0, 0, 0, 0, 0, false
    local space, blank, plain = 0, ' ', true
    for c in string.gmatch('\t\n\v\f\r', '.') do
      if find(s, c, i, true) then blank, plain = '%s', false end
    end
    while true do
      if quote < i then quote = find(s, '"', i, true) or far end
      if open < i then open = find(s, '[', i, true) or far end
      if close < i then close = find(s, ']', i, true) or far end
      if brace < i then brace = find(s, '{', i, true) or far end
      if unbrace < i then unbrace = find(s, '}', i, true) or far end
      local up, down = open < brace and open or brace, close < unbrace and close or unbrace
      local a = up < down and up or down
      if quote < a then a = quote end
      if a == far then return nil end
      if not spaced then
        if space < i then space = find(s, blank, i, plain) or far end
        spaced = space < a
      end
      if a == quote then
        a, slash = stringend(s, a, slash)
        if not a then return nil end
      elseif a == up then
        depth = depth + 1
      else
        depth = depth - 1
        if depth == 0 then return a, spaced end
      end
      i = a + 1
    end
  end

  -- closing returns the index of the bracket that closes the value at i, and whether the value has white
  -- space outside strings.
  function closing(s, i)
    if #s > 1000 then return leap(s, i) end
    local depth, slash, spaced, marks = 0, 0, false, '["%[%]{}%s]'
    while true do
      local a = find(s, marks, i)
      if not a then return nil end
      local c = byte(s, a)
      if c == 34 then
        a, slash = stringend(s, a, slash)
        if not a then return nil end
      elseif c == 91 or c == 123 then
        depth = depth + 1
      elseif c == 93 or c == 125 then
        depth = depth - 1
        if depth == 0 then return a, spaced end
      else
        spaced, marks = true, '["%[%]{}]'
      end
      i = a + 1
    end
  end

  -- squeeze removes white space outside strings, so that [1, 2] and [1,2] are the same arguments.
  function squeeze(s)
    local out, i, slash, squeezed = {}, 1, 0, {}
    while true do
      local a = find(s, '"', i, true)
      local between = sub(s, i, a and a - 1)
      if not squeezed[between] then squeezed[between] = string.gsub(between, '%s+', '') end
      out[#out + 1] = squeezed[between]
      if not a then return table.concat(out) end
      local b
      b, slash = stringend(s, a, slash)
      out[#out + 1] = sub(s, a, b or #s)
      i = (b or #s) + 1
    end
  end

  -- object finds members of an object whose first key is at pos. It returns their JSON by name, whether
  -- each has white space to squeeze, and where the object ends; nil for anything but a plain object.
  function object(s, pos, wanted)
    local values, spaced = {}, {}
    while true do
      local key, at = match(s, '^"([^"\\]*)"%s*:%s*()', pos)
      if not key then return nil end
      local c, e, blank = byte(s, at), nil, nil
      if c == 34 then
        e = stringend(s, at, 0)
      elseif c == 91 or c == 123 then
        e, blank = closing(s, at)
      else
        e = find(s, '[,}%s]', at)
        e = e and e - 1
      end
      if not e then return nil end
      if wanted[key] then values[key], spaced[key] = sub(s, at, e), blank end
      local sep
      sep, pos = match(s, '^%s*([,}])%s*()', e + 1)
      if sep == '}' then return values, spaced, pos end
      if not sep then return nil end
    end
  end

  -- unwrapped returns class and arguments of the Active Job in its wrapper's arguments, and whether these
  -- are spaced; nil if there is none.
  function unwrapped(args)
    local at = match(args, '^%[%s*{%s*()')
    if not at then return nil end
    local values, spaced, behind = object(args, at, {job_class = true, arguments = true})
    if not values or sub(args, behind) ~= ']' then return nil end
    local class, list = values.job_class, values.arguments
    if not class or #class < 3 or byte(class) ~= 34 or not list or byte(list) ~= 91 then return nil end
    return sub(class, 2, -2), list, spaced.arguments
  end

  -- envelope returns a payload's class and arguments as in its JSON, whether these have white space to
  -- squeeze, and the wrapper's class of an Active Job; nil for anything but a plain job.
  function envelope(s)
    local args, spaced
    local class, i = match(s, '^{"class":"([^"\\]+)","args":()%[')
    if class then
      local e
      e, spaced = closing(s, i)
      if not e then return nil end
      args = sub(s, i, e)
    else
      local pos = match(s, '^%s*{%s*()')
      if not pos then return nil end
      local values, blank = object(s, pos, {class = true, args = true})
      class = values and values.class
      if not class or byte(class) ~= 34 then return nil end
      class, args, spaced = sub(class, 2, -2), values.args, blank.args
      if not args or args == 'null' then args = '[]' end
    end
    if sub(class, -12) == '::JobWrapper' then
      local own, list, blank = unwrapped(args)
      if own then return own, list, blank, class end
    end
    return class, args, spaced
  end

  -- unescape removes unneeded escapes from JSON strings and normalizes control characters, so that the
  -- output of all encoders is equal.
  function unescape(s)
    if not find(s, '\\', 1, true) then return s end
    local char, short = string.char, {[8] = '\\b', [9] = '\\t', [10] = '\\n', [12] = '\\f', [13] = '\\r', [34] = '\\"', [92] = '\\\\'}
    s = string.gsub(s, '\\(.)(%x*)', function(c, digits)
      if c == '/' then return '/' .. digits end
      if c ~= 'u' or #digits < 4 then return nil end
      local n, rest = tonumber(sub(digits, 1, 4), 16), sub(digits, 5)
      if short[n] then return short[n] .. rest end
      if n < 32 then return string.format('\\u%04x', n) .. rest end
      if n < 128 then return char(n) .. rest end
      if n < 2048 then return char(192 + math.floor(n / 64), 128 + n % 64) .. rest end
      return char(224 + math.floor(n / 4096), 128 + math.floor(n / 64) % 64, 128 + n % 64) .. rest
    end)
    -- Join surrogate halves.
    return (string.gsub(s, '\237([\160-\175])([\128-\191])\237([\176-\191])([\128-\191])', function(a, b, c, d)
      local n = 65536 + (byte(a) % 16 * 64 + byte(b) % 64) * 1024 + byte(c) % 16 * 64 + byte(d) % 64
      return char(240 + math.floor(n / 262144), 128 + math.floor(n / 4096) % 64, 128 + math.floor(n / 64) % 64, 128 + n % 64)
    end))
  end

  -- lockname returns what jobs that exclude each other have in common: class and arguments (of an Active
  -- Job, its own), without white space and with minimal escapes. It must equal
  -- internal/locket/jobkey/text.go, byte for byte, for every payload.
  function lockname(payload, style)
    local name = style ~= 'payload' and quickname('', payload)
    if name then return name end
    local class, rest, spaced
    if style ~= 'payload' then class, rest, spaced = envelope(payload) end
    if class then
      if spaced then rest = squeeze(rest) end
      class, rest = unescape(class), unescape(rest)
    else
      class, rest = '', payload
    end
    if #rest > 200 then rest = ':' .. redis.sha1hex(rest) end
    return class .. rest
  end

  return stringend, closing, squeeze, envelope, lockname
end

-- spaced reports whether JSON text may have escapes, or white space outside strings, which is always next
-- to one of these characters. Plain searches cost almost nothing per byte.
local function spaced(text)
  if find(text, '\\', 1, true) then return true end
  if find(text, '\n', 1, true) or find(text, '\t', 1, true) or find(text, '\r', 1, true) then return true end
  return find(text, ' ', 1, true) and (find(text, ', ', 1, true) or find(text, ': ', 1, true)
    or find(text, '[ ', 1, true) or find(text, '{ ', 1, true) or find(text, ' ,', 1, true) or find(text, ' :', 1, true)
    or find(text, ' ]', 1, true) or find(text, ' }', 1, true))
end

-- quickname is the first rule of lockname, for most payloads: the class, then short arguments without
-- nested arrays, escapes, or white space outside strings. Otherwise it returns nil. It does not need
-- parts. tight: the caller knows that nothing in the payload is spaced.
local function quickname(before, payload, tight)
  if #payload > 400 then return nil end
  local class, args = match(payload, '^{"class":"([^"\\]+)","args":(%b[])}$')
  if not class or #args > 200 or find(args, '[', 2, true) or not tight and spaced(args) then return nil end
  return before .. class .. args
end
