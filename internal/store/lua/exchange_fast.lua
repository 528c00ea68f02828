-- exchange_fast begins the script exchange, which ends finished jobs and reserves new ones: the one script of the
-- hot path. Completions come first, so that the call can take what they free.
--
-- Most calls are plain: jobs have succeeded, and others are taken from the heads of queues in which nothing is
-- locked. For these, exchange_plain and exchange_take use as few commands as possible for all jobs together, and the
-- call ends there. exchange_slow and the parts after it handle the rest, from the point that was reached. Defining a
-- function costs time in each call, so those of the second half come after the first.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   master
-- ARGV[4]   head, see below
-- ARGV[5…]  per plain completion: token;
--           per plain completion with a lock, which are the first of these: its key;
--           per other completion: token, kind (d f r b t, u the payload is kept elsewhere), queue,
--             lock key, flags (c capped, h holds class locks, i may be under limits, k was asked to end, s goes back after
--             having run, n attempts are counted, g the failure record lacks the payload, l the
--             payload is too large for it, x park the end if it cannot be written, see parked, m the
--             failure goes to the queue's own list, as in Resque's multi-queue failure backend, o the
--             lock's name has changed: the job goes to its queue's head, not to that lock's line),
--             worker if mirrored else '', deaths, failure record or '', with n after the count (see
--             counted in exchange_finish), with g after the payload's position, for a u after the id
--             of its payload, for kind r bytes to put back instead of the job's own or '', delay (ms);
--           if anything is wanted: all wants in one text, then all queues in one, which is only
--             read as far as needed;
--           per name: queue, SHA-1 of a payload, names of its lock and its tenant;
--           per class: its name;
--           per fair queue: its name; "<index of the tenant's argument, or -> <weight of a tenant>"
--             and, for tenants of other weights, " <weight> <length> <tenant>"
-- RETURNS   {'FENCED'} the process has no valid lease, or wants jobs and has not beaten for too
--           long: nothing was done;
--           {'+' and the marks of the completions (see below), more (1|0; 2 no, and the job has waited in a line), record, …}
--           from a call on the fast path alone, for the first of the wants;
--           {'OK', bounced, more (1|0), one of 1 (applied) 0 (late) x (stuck) u (applied; a
--           duplicate) p (applied; parked) per completion as one text, the plain ones first,
--           {reasons of the stuck and parked; then why no lock can be taken, if so}, {queues whose
--           key is not a list}, {strict queues out of step}, {queue, payload whose lock or tenant
--           must be named, …}, how many suspects wait in the queues if this call has met any,
--           {token of a job that has waited in a line for its lock, or may have, or +, that of one
--           that has waited for a limit, a space and the name of its line, …}, token, record, …};
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      On the fast path, with c completions and j jobs taken from q queues: 3 commands;
--           2 to 5 for all completions together, and 2 per lock that is not removed with
--           the others; 1 per 16 queues; per queue with jobs 2 or 3, and 1 more per 64 jobs;
--           1 for the locks of up to 64 jobs, and 1 per job if one of them is held; 1 for all
--           fences; 15 to end a job and hand its lock to the next in its line, if nothing else
--           waits. O(c + j + q). On the slow path see exchange_slow.
--
-- The head is a text of fields separated by spaces: whether the call may take the fast path (0 or 1), the
-- process's lane (0 or 1), the lock key style (c by class and arguments, p by payload), the lock TTL (s), how
-- long the lease must still last (ms), the number of this sending; the numbers of plain completions, of those
-- with a lock, of other completions, of wants, of queues; how many of the first queues are likely to be empty;
-- then, for exchange_slow only, the numbers of names and of classes with their own names, the scan bound,
-- whether the call repeats another (0 or 1), and what to do with suspects (a quarantine them, t take them as
-- any job, o take nothing else), with i behind it if a plain completion may be of a job under limits.
--
-- The wants begin with the common prefix and suffix of all their workers' names, each after two bytes for its
-- length. For each want, there follow one byte for its token's length, two for the length of the rest of its
-- worker's name, the token and the rest.
--
-- Each queue has its name's length (four bytes), its mode's length (one byte; 0: same mode as the queue
-- before), its mode and its name. A mode is the cap (0 none) and flags: l locked, k its locks are named in Go,
-- u unique, s strict, q its locked jobs wait in lines, f its tenants take turns.

local stringend, closing, squeeze, envelope, lockname -- of a payload; defined when needed

local inflight, prefix, proc = KEYS[1], ARGV[1], ARGV[2]
local fastpath, lane, style, ttl, lasts, sending, nplain, nlocks, nother, nwant, nqueue, empty, headends =
  match(ARGV[4], '^(%d) (%d) (%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ()')
fastpath, style = fastpath == '1', style == 'p' and 'payload' or 'class'
nplain, nlocks, nother = tonumber(nplain), tonumber(nlocks), tonumber(nother)
nwant, nqueue, empty = tonumber(nwant), tonumber(nqueue), tonumber(empty)
local plainat, locksat = 5, 5 + nplain
local othersat = locksat + nlocks
local wantsat = othersat + 9 * nother
local queuesat = wantsat + 1

local ms, us = now()

local clock = fmt('%d', ms)
do
  -- A lease that was not extended for a while may be from before a forward jump of the clock, which a beat must
  -- notice before jobs are taken. Of two times with as many digits, the later is the larger text.
  local a = ms + tonumber(lasts)
  local lease, least = query('ZSCORE', prefix .. 'resqued:procs', proc), fmt('%d', a)
  if type(lease) ~= 'string' or #lease ~= #least or lease < least then
    lease = tonumber(type(lease) == 'string' and lease or 0)
    if not lease or lease < (nwant > 0 and a or ms) then return {'FENCED'} end
  end
end

local jobs, me = prefix .. 'locket:job_locks:', owner(proc, '')
local fencekey, fence, hundreds = prefix .. 'resqued:fence', nil, nil
local counters, deathkey = prefix .. 'locket:queue_lock_counters', prefix .. 'resqued:deaths'
