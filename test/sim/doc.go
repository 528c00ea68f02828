// Package sim runs a fleet of daemons in one process on simulated time: the real loops of masters and worker
// processes, the real scripts on a Redis in memory. Only the start of processes and sockets are stubbed, so a
// day takes seconds, and a seed decides what happens: topology, settings, jobs, faults, acts of users.
//
// A run has two phases. While faults fall, nothing forbidden may happen (ledger.go). Then they stop, all that
// waits has to end, and no key of a job may be left in Redis (run.go).
package sim
