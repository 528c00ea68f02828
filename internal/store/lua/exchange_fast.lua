-- exchange_fast begins the script exchange, which ends finished jobs and reserves new ones: the one script of the
-- hot path. Completions come first, so that what they free can be taken at once.
--
-- Most calls are plain: jobs have ended well, and others are taken from the heads of queues in which nothing is
-- locked. exchange_plain and exchange_take do that with as few commands as they can for all jobs together, and such a
-- call ends there. exchange_slow and the parts behind it handle the rest, from the point that was reached. To define
-- a function costs something in each call, so those of the second half come behind the first.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   master
-- ARGV[4]   head, see below
-- ARGV[5…]  per plain completion: token;
--           per plain completion with a lock, which are the first of these: its key;
--           per other completion: token, kind (d f r b t, u its payload stands elsewhere),
--             queue, lock key, flags (c capped, h holds class locks, k it was asked to end,
--             s it goes back after it has run, n its attempts are counted, g the payload is
--             missing in its failure record, l its payload is too large for that, x it is
--             parked if it cannot be written, see parked, m its failure goes to the list of
--             its queue as Resque's multi-queue failure backend has them, o its lock has another
--             name by now: it goes to the head of its queue, not of the line for that lock), worker if mirrored
--             else '', deaths, failure record or '', with n behind the count (see counted in
--             exchange_finish), with g behind where the payload belongs, of a u behind what has
--             it, of kind r what goes back in place of the job's own bytes or '', delay (ms);
--           if anything is wanted: all wants in one text, then all queues in one, of which
--             no more is read than is looked at;
--           per name: queue, SHA-1 of a payload, what its lock and its tenant are called;
--           per class: its name;
--           per fair queue: its name; "<index of the argument that names the tenant, or -> <weight
--             of a tenant>" and, for tenants of other weights, " <weight> <length> <tenant>"
-- RETURNS   {'FENCED'} the process has no valid lease, or wants jobs and has not beaten for
--           long: nothing was done;
--           {'+' and the marks of the completions (see below), more (1|0; 2 no, and the job has waited in a line), record, …}
--           from a call that took the fast path alone, for the first of the wants;
--           {'OK', bounced, more (1|0), one of 1 (applied) 0 (late) x (stuck)
--           u (applied; it was a duplicate) p (applied; it was parked) for each completion
--           as one text, the plain ones first, {reasons of the stuck and parked; then why no
--           lock can be taken, if so}, {queues whose key is not a list}, {strict queues that
--           are out of step}, {queue, payload whose lock, or tenant, is to be named, …}, how many suspects wait in the queues if this
--           call has met any, {token of a job that has waited in a line, or may have, …}, token, record, …};
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      On the fast path, with c completions and j jobs taken from q queues: 3 commands;
--           2 to 5 for all completions together, and 2 per lock that is not removed with
--           the others; 1 per 16 queues; per queue with jobs 2 or 3, and 1 more per 64 jobs;
--           1 for the locks of up to 64 jobs, and 1 per job where one of these is held; 1 for
--           the fences of all; 15 that end a job and hand its lock to the next of its line, where nothing
--           else waits. O(c + j + q). On the slow path see exchange_slow.
--
-- The head is a text of fields, with a space between two: whether the call may take the fast path
-- (0 or 1), the process's lane (0 or 1), the lock key style (c by class and arguments, p by payload),
-- the lock TTL (s), how long the lease has to last yet (ms), the number of this sending; the numbers of
-- plain completions, of those of them with a lock, of other completions, of wants, of queues; how many of
-- the first queues are likely to be empty; then, which only exchange_slow reads, the numbers of names
-- and of classes with names of their own, the scan bound, whether the call repeats another (0 or 1), and
-- what to do with suspects (a set them apart, t take them as any job, o take nothing else).
--
-- The wants are what the names of all their workers begin with and end with, each
-- behind two bytes with its length; then for each one byte with the length of its token, two with that of
-- the rest of its worker's name, the token and the rest.
--
-- Of each queue there is the length of its name (four bytes), the length of its mode (one
-- byte; 0: as that of the one before), its mode and its name. A mode is the cap (0 none)
-- and flags: l locked, k its locks are named in Go, u unique, s strict, q its locked jobs wait in lines,
-- f its tenants take turns.

local stringend, closing, squeeze, envelope, lockname -- of a payload; defined when they are needed

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
  -- A lease that has not been extended for a while may be of the time before the clock
  -- went forward: a beat notices, before jobs are taken. Of two
  -- times with as many digits the later is the larger text.
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
