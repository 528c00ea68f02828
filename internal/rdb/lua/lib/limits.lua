-- limits counts the running jobs of each limit, and notes which waiting ones may go. A gate is what a rule counts by:
-- the rule's name, a colon and its key. If a rule counts by host or process, each counts by itself: its scope.
--
-- Jobs over a limit wait in a line (see lines), whose name is an \1 and the gate; \2 if there are scopes.
--
--   resqued:limit:<gate><scope>  jobs that run under the limit, "<proc>#<token>" → since when (ms)
--   resqued:rate:<gate><scope>   when all starts until now are paid for (µs); see limit
--   resqued:slots:<proc>         the gates of jobs, as in held_pack: name of the line, scope; see tokensof
--   resqued:limits               overrides: a rule or a gate → "<until (ms)> <concurrency> <µs per unit> <burst>",
--                                each "-" if not overridden
--   resqued:room                 names of lines → how many of their jobs may go; after an @, when the last were given
--                                (µs); after a #, that all entries without records were looked for since the line began
--   resqued:limit:full:<proc>:<gate>  the process has just found this limit full, which has scopes
--   resqued:limit:hold:<name>    a suspect is the next of a line, and a process comes that runs only it
--   resqued:limit:due            names of lines → when their next job may go (ms)
--
-- A job counts exactly as long as it has a record. Its entries go with the record if any job waits for a limit;
-- otherwise they stay until the process next asks for limits, so that ends are cheap. All else here may be lost: before a
-- job waits, the script looks for the records of the jobs that run, and polls probe lines.
--
-- DEFINES  slots.named(name): yes or no; slots.tokensof(value), slots.find(prefix, proc, token): see there;
--          slots.free(prefix, proc, token, released): no result; it appends the gates to released, as if they were
--          locks; slots.collect(prefix, proc): no result; it removes the entries of a process's jobs without a record;
--          slots.dead(prefix, key, all): how many of the oldest, or of all, were removed, as their record is gone;
--          slots.wake(prefix, known, name, room, us), slots.sleep(prefix, known, name, awaited), slots.due(prefix,
--          known, ms, us): no result; known has the functions of line_locks; slots.going(prefix, proc, name, us): a
--          number; slots.gone(prefix, known, name, left, us): no result; slots.probe(prefix, name, ms): whether no job
--          is in the way of the line
-- NEEDS    base, records
-- KEYS     reads and writes those above but overrides and rates; reads in-flight records
-- COST     find: 1 command, or 2; free: those of find, 1, and 1 per gate; dead: 9, or with all 1 per job, and 1 per
--          removed job; collect: 2, and per field 1 and 1 per gate; wake: 2, and 1 per queue;
--          due: 1, and those of wake for each of 64; probe: 1 to 10

local slots = {unlikely = 20000} -- ms after which a job that runs may have lost its record unnoticed

-- named reports whether the name of a line is that of a limit's.
function slots.named(name) return find(name, '^[\1\2]') end

-- A field of slots is named after the first of some tokens that began together. Its value is these tokens, each after a
-- space, a newline, and their gates. tokensof returns both.
function slots.tokensof(value)
  local tokens, text = match(value, '^( [^\n]*)\n(.*)$')
  return tokens or '', text or ''
end

-- find returns the field that has a token, its tokens without that one, and its gates; or nil.
function slots.find(prefix, proc, token)
  local key, field, tokens, text = prefix .. 'resqued:slots:' .. proc, nil, nil, nil
  local function look(name, value)
    local all, gates = slots.tokensof(value)
    local from, to = find(all .. ' ', ' ' .. token .. ' ', 1, true)
    if from then field, tokens, text = name, sub(all, 1, from - 1) .. sub(all, to), gates end
  end
  local value = pcall_('HGET', key, token)
  if type(value) == 'string' then look(token, value) end
  local rest = not field and pcall_('HGETALL', key) or {}
  for i = 1, rest.err and 0 or #rest, 2 do look(rest[i], rest[i + 1]) end
  return field, tokens, text
end

local function keep(key, field, tokens, text)
  if tokens == '' then call('HDEL', key, field) else call('HSET', key, field, tokens .. '\n' .. text) end
end

function slots.free(prefix, proc, token, released)
  local field, tokens, text = slots.find(prefix, proc, token)
  if not field then return end
  keep(prefix .. 'resqued:slots:' .. proc, field, tokens, text)
  local at = #released
  held_each(text, function(name, scope)
    pcall_('ZREM', prefix .. 'resqued:limit:' .. sub(name, 2) .. scope, proc .. '#' .. token)
    if scope ~= '' then pcall_('DEL', prefix .. 'resqued:limit:full:' .. proc .. ':' .. sub(name, 2)) end
    -- Now one limit comes first, now another: each of them has jobs that wait for it.
    local place = (tonumber(sub(token, -1)) or 0) % 2 == 0 and #released + 1 or at + 1
    table.insert(released, place, prefix .. 'locket:job_locks:' .. name)
  end)
end

function slots.collect(prefix, proc)
  local key, here, gates = prefix .. 'resqued:slots:' .. proc, {}, {}
  local all = pcall_('HGETALL', key)
  if all.err or #all == 0 then return end
  for _, token in ipairs(call('HKEYS', prefix .. 'resqued:inflight:' .. proc)) do here[token] = true end
  for i = 1, #all, 2 do
    local tokens, text = slots.tokensof(all[i + 1])
    local left, gone = '', {}
    for token in string.gmatch(tokens, '%S+') do
      if here[token] then left = left .. ' ' .. token else gone[#gone + 1] = proc .. '#' .. token end
    end
    if #gone > 0 then
      keep(key, all[i], left, text)
      gates[text] = gates[text] or {}
      table.insert(gates[text], gone)
    elseif tokens == '' then
      call('HDEL', key, all[i])
    end
  end
  for text, groups in pairs(gates) do
    held_each(text, function(name, scope)
      for _, gone in ipairs(groups) do pcall_('ZREM', prefix .. 'resqued:limit:' .. sub(name, 2) .. scope, unpack(gone)) end
    end)
  end
end

function slots.dead(prefix, key, all)
  local oldest, n = pcall_('ZRANGE', key, '0', all and '-1' or '7'), 0
  for _, member in ipairs(oldest.err and {} or oldest) do
    local proc, token = match(member, '^(.*)#([^#]*)$')
    if not proc or pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. proc, token) == 0 then
      n = n + (call('ZREM', key, member) == 1 and 1 or 0)
    end
  end
  return n
end

function slots.wake(prefix, known, name, room, us)
  local text = pcall_('HGET', prefix .. 'resqued:awaited', name)
  if type(text) ~= 'string' then return end
  known.kept('HSET', prefix .. 'resqued:room', name, fmt('%d', room))
  known.queued(text, function(queue)
    known.kept('ZADD', prefix .. 'resqued:ready:' .. queue, 'NX', fmt('%.0f', us - 9e15), name)
  end)
end

function slots.sleep(prefix, known, name, text)
  pcall_('HDEL', prefix .. 'resqued:room', name, '@' .. name)
  known.queued(text, function(queue) pcall_('ZREM', prefix .. 'resqued:ready:' .. queue, name) end)
end

-- going returns how many jobs of a ready line may go: none while another process asks for the limits of some of them,
-- for a second at most, or if this one has just found the limit full.
function slots.going(prefix, proc, name, us)
  local room = pcall_('HMGET', prefix .. 'resqued:room', name, '@' .. name)
  local n, last = tonumber(room[1] or 1) or 1, tonumber(room[2] or 0) or 0
  if byte(name) == 2 then return pcall_('EXISTS', prefix .. 'resqued:limit:full:' .. proc .. ':' .. sub(name, 2)) == 1 and 0 or 1 end
  if pcall_('EXISTS', prefix .. 'resqued:limit:hold:' .. name) == 1 then return 0 end
  if n > 0 then return n end
  return us - last < 1000000 and 0 or 1
end

-- gone notes that jobs of a line were given.
function slots.gone(prefix, known, name, left, us)
  known.kept('HSET', prefix .. 'resqued:room', name, fmt('%d', math.max(0, left)), '@' .. name, fmt('%.0f', us))
end

function slots.due(prefix, known, ms, us)
  local key = prefix .. 'resqued:limit:due'
  local names = known.kept('ZRANGEBYSCORE', key, '-inf', fmt('%.0f', ms), 'LIMIT', '0', '64')
  for _, name in ipairs(names.err and {} or names) do
    slots.wake(prefix, known, name, 1, us)
    pcall_('ZREM', key, name)
  end
end

function slots.probe(prefix, name, ms)
  if pcall_('ZSCORE', prefix .. 'resqued:limit:due', name) then return false end
  if byte(name) == 2 then return true end
  local key = prefix .. 'resqued:limit:' .. sub(name, 2)
  local first = pcall_('ZRANGE', key, '0', '0', 'WITHSCORES')
  if first.err or #first == 0 then return true end
  return tonumber(first[2]) < ms - slots.unlikely and slots.dead(prefix, key) > 0
end
