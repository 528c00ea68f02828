-- request_kill requests the end of one running job. Only the job's own process reacts, and a token names one
-- run of one job for ever, so the request never hits the next job.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   token
-- ARGV[4]   grace (ms)
-- ARGV[5]   requeue (1|0)
-- RETURNS   'asked'; 'gone' the job does not run, or not any more; 'dead' its process is being
--           recovered, and would not react; error RESQUEDTYPE: a key is not a hash, nothing was
--           done
-- COST      7 commands; O(1)

local prefix, proc, token, grace = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local kills = prefix .. 'resqued:kills:' .. proc
if call('HEXISTS', KEYS[1], token) == 0 then return 'gone' end
local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
if not lease or lease == 0 then return 'dead' end
if type(query('HLEN', kills)) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. kills .. ' is not a hash; move it away')
end
call('PERSIST', KEYS[1]) -- see register: a full server must not reject the rest
call('HSET', kills, token, ARGV[4] .. ' ' .. ARGV[5])
local ttl = grace + 600000 -- for recovery, if the process dies first
if call('PTTL', kills) < ttl then call('PEXPIRE', kills, ttl) end
return 'asked'
