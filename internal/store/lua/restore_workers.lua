-- restore_workers shows a process's threads as workers again after others have removed them, and removes the
-- failures that these have recorded: a pruner of Ruby's Resque fails the job of each worker that it takes for
-- dead. This process lives, and only it knows the fate of its jobs.
--
-- KEYS[1]   workers
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   start time, in Resque's format
-- ARGV[4]   w, the number of workers
-- ARGV[5…]  per worker: id, jobs processed and jobs failed since its registration, token of the
--           job in hand or ''; then the lists of failures
-- RETURNS   {{number, from 0, of a worker that was missing, …}, how many failures were removed};
--           {{}, 0} also if the process was recovered or has left
-- COST      1 command, 1 per worker, 4 per missing one; if any is missing 1 for each of the last
--           1,000 records, or of the last 1 MB, of each list; O(w + records)

local prefix, proc = ARGV[1], ARGV[2]
local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
if not lease or lease == 0 then return {{}, 0} end -- it was recovered or has left
local missing, again = {}, {}
for i = 0, tonumber(ARGV[4]) - 1 do
  local id, processed, failed, token = ARGV[5 + 4 * i], ARGV[6 + 4 * i], ARGV[7 + 4 * i], ARGV[8 + 4 * i]
  if query('SISMEMBER', KEYS[1], id) == 0 then
    call('SADD', KEYS[1], id)
    call('SET', prefix .. 'worker:' .. id .. ':started', ARGV[3])
    if processed ~= '0' then call('SET', prefix .. 'stat:processed:' .. id, processed) end
    if failed ~= '0' then call('SET', prefix .. 'stat:failed:' .. id, failed) end
    missing[id], again[#again + 1] = token, i
  end
end

-- accused returns the worker in a failure that only a pruner writes.
local function accused(failure)
  local text = sub(failure, -16384)
  local rest = '"backtrace":%[%],"worker":"([^"]*)","queue":"[^"]*"}$'
  return match(text, '"exception":"Resque::DirtyExit","error":"Job still being processed",' .. rest)
    or match(text, '"exception":"Resque::PruneDeadWorkerDirtyExit","error":"[^"]*",' .. rest)
end

-- It was written just now, so only this much is searched.
local most, room = 1000, 1048576
local taken = 0
for i = 5 + 4 * tonumber(ARGV[4]), #again > 0 and #ARGV or 0 do
  local list, untrue = prefix .. ARGV[i], {}
  local bytes = 0
  for at = 1, most do
    local failure = query('LINDEX', list, -at)
    if type(failure) ~= 'string' then break end
    bytes = bytes + #failure
    if bytes > room then break end
    local token = missing[accused(failure) or '']
    -- If the record of a job in hand is gone, the failure is all that is left of it.
    if token and (token == '' or query('HEXISTS', prefix .. 'resqued:inflight:' .. proc, token) == 1) then
      untrue[#untrue + 1] = failure
    end
  end
  for _, failure in ipairs(untrue) do taken = taken + call('LREM', list, -1, failure) end
end
return {again, taken}
