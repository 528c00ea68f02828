// Package procfs looks at the processes of this machine as /proc shows them.
//
// stat.go reads what a process is, and environ.go its environment. sweep.go kills processes
// until none is left, and sweeper.go selects those that a worker process has started. strays.go
// reaps orphans that no code waits for. gone.go proves that a process is dead. tasks.go and
// oom.go read limits and counts of control groups.
package procfs
