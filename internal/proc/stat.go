package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// stat is what resqued wants to know of /proc/PID/stat.
type stat struct {
	state  byte
	parent int
	// threads counts them, those that have ended included.
	threads uint64
	// start is when the process started, in ticks since the boot. With the
	// process id it names one process for ever.
	start            uint64
	argStart, argEnd uint64
	envStart, envEnd uint64
}

// zombie: the process is dead and only waits to be reaped.
func (s stat) zombie() bool { return s.state == 'Z' || s.state == 'X' }

// dead: nothing of the process runs any more. A zombie with threads is one whose first
// thread has ended while others run.
func (s stat) dead() bool { return s.zombie() && s.threads < 2 }

// whole reports whether env can be the whole environment of the process. It is read in
// pieces, and one that dies, or executes another program, has no more of it. One that is
// empty may be hidden, or not there yet.
func (s stat) whole(env []byte) bool {
	return len(env) > 0 && uint64(len(env)) == s.envEnd-s.envStart
}

// readStat reads /proc/<pid>/stat; pid may be "self".
func readStat(pid string) (stat, error) {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may contain anything, also parentheses and spaces.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 49 {
		return stat{}, fmt.Errorf("/proc/%s/stat: %.200q is not understood", pid, data)
	}
	s := stat{state: fields[0][0]}
	for _, f := range []struct {
		number int // as proc(5) counts them; the state is 3
		into   *uint64
	}{{20, &s.threads}, {22, &s.start}, {48, &s.argStart}, {49, &s.argEnd}, {50, &s.envStart}, {51, &s.envEnd}} {
		if *f.into, err = strconv.ParseUint(fields[f.number-3], 10, 64); err != nil {
			return stat{}, fmt.Errorf("/proc/%s/stat: %w", pid, err)
		}
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, fmt.Errorf("/proc/%s/stat: %w", pid, err)
	}
	return s, nil
}
