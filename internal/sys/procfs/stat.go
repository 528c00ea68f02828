package procfs

import "strconv"

// Stat is what resqued reads of a process, on Linux in /proc/PID/stat.
type Stat struct {
	State  byte
	Parent int
	// Group is the number of the process group.
	Group int
	// Threads counts them, those that have ended included.
	Threads uint64
	// Start is when the process started: in ticks since the boot on Linux, else in
	// microseconds since 1970. With the process id it names one process for ever.
	Start uint64
	// Where its arguments and its environment lie in its memory; 0 where that is not told.
	ArgStart, ArgEnd uint64
	EnvStart, EnvEnd uint64
	// CodeStart is where its code begins; 0 where there is none, or that is not told.
	CodeStart uint64
}

// placed reports whether the process has a program with an environment in place. One that executes another
// program has none for a while: at first without an address, then as an empty one, until the kernel has
// put the new one together and, after it, says where the code is.
func (s Stat) placed() bool { return s.EnvEnd != 0 && s.CodeStart != 0 }

// Zombie reports whether the first thread of the process has ended and waits to be reaped.
func (s Stat) Zombie() bool { return s.State == 'Z' || s.State == 'X' }

// Dead reports whether nothing of the process runs any more. A zombie with threads is one whose
// first thread has ended while others run.
func (s Stat) Dead() bool { return s.Zombie() && s.Threads < 2 }

// ReadStat reads that of one process.
func ReadStat(pid int) (Stat, error) { return readStat(strconv.Itoa(pid)) }

// SelfStat reads that of this process.
func SelfStat() (Stat, error) { return readStat("self") }
