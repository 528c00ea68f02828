-- longjob is shared by the scripts of long jobs. A run is a hash resqued:longjob:run:<uuid>, its state from
-- slice to slice a hash resqued:longjob:state:<uuid>. A payload contains the number of its slice: of a run's
-- payloads only one is current, so one that comes back after its slice has ended is recognized.
--
-- owner names the in-flight record under which a slice runs. Recovery takes the record and puts the payload
-- back in one step: while the record exists, a process runs the slice or will be found dead; without it, no
-- process does.
--
-- DEFINES  runkey, statekey, sliceskey (prefix, uuid), currentkey, activekey, endedkey (prefix),
--          subjectskey, startskey (prefix, class): keys; active(status), recorded(prefix, owner),
--          leased(prefix, proc, ms), counts(command, key): yes or no; fail(text), needhash(key),
--          needlong(prefix, id, queue): end the script where a key is in the way;
--          noteslice(prefix, id, ms, outcome, name, started, before): no result
-- NEEDS    base, records, unique
-- KEYS     reads and writes resqued:longjob:*, reads resqued:inflight:* and resqued:procs
-- COST     needlong: about 6 commands; noteslice: 4

local function runkey(prefix, id) return prefix .. 'resqued:longjob:run:' .. id end
local function statekey(prefix, id) return prefix .. 'resqued:longjob:state:' .. id end
local function sliceskey(prefix, id) return prefix .. 'resqued:longjob:slices:' .. id end
local function currentkey(prefix) return prefix .. 'resqued:longjob:current' end -- kind → newest run
local function activekey(prefix) return prefix .. 'resqued:longjob:active' end -- run → last sign of life, ms
local function endedkey(prefix) return prefix .. 'resqued:longjob:ended' end -- run → when it is forgotten, ms
local function subjectskey(prefix, class) return prefix .. 'resqued:longjob:subjects:' .. class end -- see recur
local function startskey(prefix, class) return prefix .. 'resqued:longjob:starts:' .. class end -- runs of subjects

local function active(status) return status == 'queued' or status == 'running' end

local function recorded(prefix, name)
  local p, t = match(name, '^resqued:(.*)#([^#]*)$')
  return p and call('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 1
end

-- leased reports whether a process's lease has not expired.
local function leased(prefix, proc, ms)
  local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
  return lease and lease >= ms
end

local function counts(command, key) return type(query(command, key)) == 'number' end

-- fail ends the script with an error. Before Redis 7 that can only be a text, which the server prefixes with a
-- position; the dash marks where the error begins.
local function fail(text)
  error(redis.acl_check_cmd and redis.error_reply(text) or '-' .. text, 0)
end

-- needhash ends the script if a key exists and is not a hash.
local function needhash(key)
  if not counts('HLEN', key) then fail('RESQUEDTYPE ' .. key .. ' is not a hash; move it away') end
end

-- noteslice notes, for people, a slice that ended at ms: name is the owner of its record, before the units when
-- it began. It fails silently, because the run does not depend on it. The newest 200 are kept.
local function noteslice(prefix, id, ms, outcome, name, started, before)
  local units = tonumber(call('HGET', runkey(prefix, id), 'units') or 0) or 0
  started, before = tonumber(started or ms) or ms, tonumber(before or 0) or 0
  local key = sliceskey(prefix, id)
  local text = fmt('%.0f %.0f %.0f %s %s', started, math.max(0, ms - started), math.max(0, units - before), outcome, match(name, '^resqued:(.*)#') or '-')
  if type(pcall_('RPUSH', key, text)) ~= 'number' then return end
  pcall_('LTRIM', key, -200, -1)
  pcall_('EXPIRE', key, 7776000) -- older versions leave this key when they forget the run
end

-- needlong ends the script, before it has written anything, if a write could fail. queue is nil if nothing is
-- pushed.
local function needlong(prefix, id, queue)
  for _, key in ipairs({activekey(prefix), endedkey(prefix)}) do
    if not counts('ZCARD', key) then fail('RESQUEDTYPE ' .. key .. ' is not a sorted set; move it away') end
  end
  needhash(runkey(prefix, id))
  needhash(statekey(prefix, id))
  needhash(currentkey(prefix))
  if not queue then return end
  local key = prefix .. 'queue:' .. queue
  if not len(key) then fail('RESQUEDTYPE ' .. key .. ' is not a list; move it away') end
  if not utyped(key) then
    fail('RESQUEDTYPE ' .. key .. ':uniqueue is not a set or ' .. key .. ':start_at not a list; move it away')
  end
end
