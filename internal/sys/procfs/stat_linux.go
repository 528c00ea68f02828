package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// readStat reads /proc/<pid>/stat; pid may be "self".
func readStat(pid string) (Stat, error) {
	data, err := read("/proc/" + pid + "/stat")
	if err != nil {
		return Stat{}, err
	}
	// The name in parentheses may contain anything, including parentheses and spaces.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 49 {
		return Stat{}, fmt.Errorf("/proc/%s/stat: %.200q is not understood", pid, data)
	}
	s := Stat{State: fields[0][0]}
	for _, f := range []struct {
		number int // as proc(5) counts them; the state is 3
		into   *uint64
	}{{20, &s.Threads}, {22, &s.Start}, {26, &s.CodeStart}, {48, &s.ArgStart}, {49, &s.ArgEnd}, {50, &s.EnvStart}, {51, &s.EnvEnd}} {
		if *f.into, err = strconv.ParseUint(fields[f.number-3], 10, 64); err != nil {
			return Stat{}, fmt.Errorf("/proc/%s/stat: %w", pid, err)
		}
	}
	if s.Parent, err = strconv.Atoi(fields[1]); err != nil {
		return Stat{}, fmt.Errorf("/proc/%s/stat: %w", pid, err)
	}
	if s.Group, err = strconv.Atoi(fields[2]); err != nil {
		return Stat{}, fmt.Errorf("/proc/%s/stat: %w", pid, err)
	}
	return s, nil
}

// whole reports whether env can be the whole environment. It is read in pieces, and a process
// that dies or executes another program cuts it short. An empty one may be hidden, or not in
// place yet.
func (s Stat) whole(env []byte) bool {
	return len(env) > 0 && uint64(len(env)) == s.EnvEnd-s.EnvStart
}
