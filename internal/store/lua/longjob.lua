-- longjob is what the scripts of long jobs share. A run is a hash
-- resqued:longjob:run:<uuid>, what it remembers from slice to slice a hash
-- resqued:longjob:state:<uuid>. Each slice has its own payload, which carries the number
-- of the slice: of all payloads of a run one alone counts, so that one which comes back
-- after its slice has ended is known for what it is.
--
-- owner names the in-flight record under which a slice runs. Recovery takes the record
-- and puts the payload back in one step; so as long as there is a record somebody runs
-- the slice, or will be found dead, and once there is none nobody does.

local function runkey(prefix, id) return prefix .. 'resqued:longjob:run:' .. id end
local function statekey(prefix, id) return prefix .. 'resqued:longjob:state:' .. id end
local function currentkey(prefix) return prefix .. 'resqued:longjob:current' end -- kind → newest run
local function activekey(prefix) return prefix .. 'resqued:longjob:active' end -- run → last sign of life, ms
local function endedkey(prefix) return prefix .. 'resqued:longjob:ended' end -- run → when it is forgotten, ms
local function subjectskey(prefix, class) return prefix .. 'resqued:longjob:subjects:' .. class end -- see longrecur
local function startskey(prefix, class) return prefix .. 'resqued:longjob:starts:' .. class end -- runs of subjects

local function active(status) return status == 'queued' or status == 'running' end

-- recorded tells whether the in-flight record of an owner exists.
local function recorded(prefix, name)
  local p, t = match(name, '^resqued:(.*)#([^#]*)$')
  return p and call('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 1
end

-- leased tells whether a process has a lease that is not past.
local function leased(prefix, proc, ms)
  local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
  return lease and lease >= ms
end

local function counts(command, key) return type(query(command, key)) == 'number' end

-- needhash ends the script unless something is a hash, or is not there.
local function needhash(key)
  if not counts('HLEN', key) then error(redis.error_reply('RESQUEDTYPE ' .. key .. ' is no hash; move it away')) end
end

-- needlong ends the script, before it has written anything, unless it may do all that it does
-- from there on. queue is nil where nothing is pushed.
local function needlong(prefix, id, queue)
  need(runkey(prefix, id), 'HGET', 'HGETALL', 'HSET', 'HDEL', 'PERSIST', 'DEL')
  need(statekey(prefix, id), 'HGETALL', 'HSET', 'HDEL', 'DEL')
  need(currentkey(prefix), 'HGET', 'HSET', 'HDEL')
  for _, key in ipairs({activekey(prefix), endedkey(prefix)}) do
    need(key, 'ZADD', 'ZREM', 'ZSCORE')
    if not counts('ZCARD', key) then error(redis.error_reply('RESQUEDTYPE ' .. key .. ' is no sorted set; move it away')) end
  end
  needhash(runkey(prefix, id))
  needhash(statekey(prefix, id))
  needhash(currentkey(prefix))
  if not queue then return end
  local key = prefix .. 'queue:' .. queue
  needlist(key)
  need(key .. ':uniqueue', 'EXISTS')
  needcompanions(prefix)
  if not len(key) then error(redis.error_reply('RESQUEDTYPE ' .. key .. ' is no list; move it away')) end
  if not utyped(key) then
    error(redis.error_reply('RESQUEDTYPE ' .. key .. ':uniqueue is no set or ' .. key .. ':start_at no list; move it away'))
  end
end

-- pushslice puts the payload of a slice into its queue, unique or not.
local function pushslice(prefix, queue, payload, ms)
  local unique = call('EXISTS', prefix .. 'queue:' .. queue .. ':uniqueue') == 1
  putback(prefix, queue, payload, unique and fmt('%.0f', math.floor(ms / 1000)) or '-', false)
end

-- ofsubject tells whether a run is that of a subject of a recurring job, whoever starts it,
-- and counts it among those that may wait or run.
local function ofsubject(prefix, id, class, kind)
  local subjects, starts = subjectskey(prefix, class), startskey(prefix, class)
  if pcall_('HEXISTS', subjects, kind) ~= 1 then return false end
  pcall_('SADD', starts, id)
  local left = pcall_('PTTL', subjects)
  if type(left) == 'number' and left > 0 then pcall_('PEXPIRE', starts, left) end
  return true
end

-- addrun makes a run, the newest of its kind, and pushes its first slice. again is the
-- queue of its further slices if it is not that of its class.
local function addrun(prefix, id, kind, class, args, queue, again, payload, ms)
  local at = fmt('%.0f', ms)
  call('HSET', runkey(prefix, id), 'kind', kind, 'class', class, 'args', args, 'first', queue, 'queue', queue,
    'again', again, 'status', 'queued', 'slice', '1', 'owner', '', 'fence', '0', 'created', at, 'seen', at)
  call('HSET', currentkey(prefix), kind, id)
  call('ZADD', activekey(prefix), at, id)
  if ofsubject(prefix, id, class, kind) then pcall_('HSET', subjectskey(prefix, class), kind, at) end
  pushslice(prefix, queue, payload, ms)
end

-- endrun gives a run its last status. It is forgotten after keep ms.
local function endrun(prefix, id, status, keep, ms)
  call('HSET', runkey(prefix, id), 'status', status, 'ended', fmt('%.0f', ms))
  call('HDEL', runkey(prefix, id), 'rerun')
  call('ZREM', activekey(prefix), id)
  call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id)
end

-- displace is for the run that was the newest of its kind until now.
local function displace(prefix, id, keep, ms)
  local status = call('HGET', runkey(prefix, id), 'status')
  if active(status) then
    endrun(prefix, id, 'superseded', keep, ms)
    call('DEL', statekey(prefix, id))
  elseif status then
    local at = tonumber(call('ZSCORE', endedkey(prefix), id) or 0)
    if at > ms + keep then call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id) end
  end
end
