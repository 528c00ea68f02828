package procfs

import "strconv"

// Stat is what resqued reads of a process, on Linux in /proc/PID/stat.
type Stat struct {
	State  byte
	Parent int
	Group  int
	// Threads counts the threads, ended ones included.
	Threads uint64
	// Start is the start time: ticks since the boot on Linux, elsewhere microseconds since 1970.
	// With the pid it names one process for ever.
	Start uint64
	// Addresses of the arguments and the environment; 0 = unknown.
	ArgStart, ArgEnd uint64
	EnvStart, EnvEnd uint64
	// CodeStart is the address of the code; 0 = none, or unknown.
	CodeStart uint64
}

// placed reports whether the process's environment is in place. A process that executes another
// program has none for a while: first without an address, then empty, until the kernel has built
// the new one and then sets the address of the code.
func (s Stat) placed() bool { return s.EnvEnd != 0 && s.CodeStart != 0 }

// Zombie reports whether the main thread has ended and waits to be reaped.
func (s Stat) Zombie() bool { return s.State == 'Z' || s.State == 'X' }

// Dead reports whether nothing of the process runs any more. In a zombie with threads, only the
// main thread has ended.
func (s Stat) Dead() bool { return s.Zombie() && s.Threads < 2 }

// ReadStat reads the Stat of a process.
func ReadStat(pid int) (Stat, error) { return readStat(strconv.Itoa(pid)) }

// SelfStat reads the Stat of this process.
func SelfStat() (Stat, error) { return readStat("self") }
