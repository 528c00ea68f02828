-- beat extends a process's lease and every lock that it holds.
--
-- KEYS[1] resqued:procs
-- ARGV    prefix, proc, lease (ms), beat interval (ms), lock TTL (s), number of
--         running jobs, of info pairs, of workers; then per job: token, lock key
--         ('' none); field/value pairs; per worker: id, processed, failed since
--         the last beat
-- RETURNS {'FENCED'} if somebody has recovered this process: it must not go on;
--         else {'OK', {tokens whose lock is lost}, {tokens without a record}}

local prefix, proc, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local every, ttl = tonumber(ARGV[4]), ARGV[5]
local njobs, ninfo, nworkers = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local arg = 9
local ms = now()

local held = tonumber(pcall_('ZSCORE', KEYS[1], proc) or 0)
if not held or held == 0 then return {'FENCED'} end
call('PERSIST', KEYS[1])
beaten(prefix, ms, lease, every)
call('ZADD', KEYS[1], 'XX', fmt('%.0f', ms + lease), proc)

local lost, gone = {}, {}
for _ = 1, njobs do
  local token, lock = ARGV[arg], ARGV[arg + 1]
  arg = arg + 2
  if pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. proc, token) ~= 1 then gone[#gone + 1] = token end
  if lock ~= '' then
    if pcall_('GET', lock) == owner(proc, token) then
      call('EXPIRE', lock, ttl)
    else
      lost[#lost + 1] = token
    end
  end
end
for _ = 1, ninfo do
  call('HSET', prefix .. 'resqued:proc:' .. proc, ARGV[arg], ARGV[arg + 1])
  arg = arg + 2
end
for _ = 1, nworkers do
  local id, p, f = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  arg = arg + 3
  if p ~= '0' then pcall_('INCRBY', prefix .. 'stat:processed:' .. id, p) end
  if f ~= '0' then pcall_('INCRBY', prefix .. 'stat:failed:' .. id, f) end
end
return {'OK', lost, gone}
