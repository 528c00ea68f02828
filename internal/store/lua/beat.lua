-- beat extends the lease of a worker process and all of its locks.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   lease (ms)
-- ARGV[4]   beat interval (ms)
-- ARGV[5]   TTL of locks (s)
-- ARGV[6]   j, the number of running jobs
-- ARGV[7]   number of field/value pairs of resqued:proc:<proc>
-- ARGV[8]   w, the number of workers with statistics
-- ARGV[9]   id of the data set, which register returned
-- ARGV[10]  l, the number of worker ids to look for
-- ARGV[11…] per job: token, key of its lock ('' none), whether it holds class locks (1|0);
--           per pair: field, value; per worker: id, jobs processed and jobs failed since the
--           last beat; then the ids to look for
-- RETURNS   {'FENCED'} another process has recovered this one, which must end;
--           {'WIPED'} the server has lost all data: the process may register again;
--           {'OK', {tokens whose lock is lost}, {tokens without a record}, {tokens of
--           records that were not named, at most 16}, whether one of the ids to look for is
--           missing in workers (1|0)}
-- COST      9 commands, 3 or 4 per job, 2 per class lock, 2 per worker, 1 per
--           id; O(j + w + l). After a silence of all processes those of relock in addition.

local prefix, proc, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local every, ttl = tonumber(ARGV[4]), ARGV[5]
local njobs, ninfo, nworkers = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local id, nlook, arg = ARGV[9], tonumber(ARGV[10]), 11
local ms = now()

local lasts = query('ZSCORE', KEYS[1], proc)
if not lasts and query('HGET', prefix .. 'resqued:meta', 'id') ~= id then return {'WIPED'} end
lasts = tonumber(lasts or 0)
if not lasts or lasts == 0 then return {'FENCED'} end
call('PERSIST', KEYS[1])
beaten(prefix, ms, lease, every)
call('ZADD', KEYS[1], 'XX', fmt('%.0f', ms + lease), proc)
relock(prefix, proc, ttl)

local lost, gone, left = {}, {}, {}
local inflight, named = prefix .. 'resqued:inflight:' .. proc, {}
for _ = 1, njobs do
  local token, lock, class = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2] == '1'
  arg = arg + 3
  named[token] = true
  if query('HEXISTS', inflight, token) ~= 1 then gone[#gone + 1] = token end
  local whole = true
  -- extend keeps a lock that is still ours; a timed one ends at its time.
  local function extend(key, value)
    if query('GET', key) ~= value then
      whole = false
    elseif not match(value, '^%d') then
      call('EXPIRE', key, ttl)
    end
  end
  if lock ~= '' then extend(lock, owner(proc, token)) end
  if class then
    local locks = query('HGET', prefix .. 'resqued:held:' .. proc, token)
    if type(locks) == 'string' then held_each(locks, extend) else whole = false end
  end
  if not whole then lost[#lost + 1] = token end
end
local records = query('HLEN', inflight)
if type(records) == 'number' and records > njobs - #gone then
  local step = 1
  local tokens = records <= 5000 and call('HKEYS', inflight)
  if not tokens then -- not ours: only read a part
    tokens, step = call('HSCAN', inflight, '0', 'COUNT', 1000)[2], 2
  end
  for i = 1, #tokens, step do
    local token = tokens[i]
    if not named[token] and #left < 16 then left[#left + 1] = token end
  end
end
if ninfo > 0 then call('HSET', prefix .. 'resqued:proc:' .. proc, unpack(ARGV, arg, arg + 2 * ninfo - 1)) end
arg = arg + 2 * ninfo
for _ = 1, nworkers do
  local id, p, f = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  arg = arg + 3
  if p ~= '0' then pcall_('INCRBY', prefix .. 'stat:processed:' .. id, p) end
  if f ~= '0' then pcall_('INCRBY', prefix .. 'stat:failed:' .. id, f) end
end
local missing = 0
for i = arg, arg + nlook - 1 do
  if query('SISMEMBER', prefix .. 'workers', ARGV[i]) == 0 then missing = 1; break end
end
return {'OK', lost, gone, left, missing}
