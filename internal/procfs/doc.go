// Package procfs looks at the processes of this machine as /proc shows them.
//
// stat.go reads what one process is; descendants.go and below.go find what a worker
// process has started where its mark (package mark) does not say so, sweep.go ends it, and
// strays.go reaps orphans that no code waits for. gone.go proves that a process is dead.
// tasks.go and oom.go read the limits and counts of control groups.
package procfs
