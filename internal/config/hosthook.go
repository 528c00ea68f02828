package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// leastHostSilence exceeds the time between a working host's heartbeats, about 5 s.
	leastHostSilence = 6 * time.Second
	// mostHostPatience bounds a hook: while it runs, no other master asks.
	mostHostPatience = time.Hour
)

func hostSilence(d time.Duration) error {
	if d > 0 && d < leastHostSilence {
		return fmt.Errorf("must be 0 (two and a half beats) or at least %s, since a host that works may be silent for as long", FormatDuration(leastHostSilence))
	}
	return nil
}

func hostPatience(d time.Duration) error {
	if d < time.Second || d > mostHostPatience {
		return fmt.Errorf("must be 1s to %s", FormatDuration(mostHostPatience))
	}
	return nil
}

// readHostHook reads host_dead_hook, and warns of settings without effect.
func (l *loader) readHostHook() {
	const key = "host_dead_hook"
	argv := l.lists[key]
	switch {
	case l.bad[key]:
		return
	case len(argv) == 0:
		for _, other := range []string{"host_dead_after", "host_dead_timeout"} {
			if l.ok(other) {
				l.noEffect(other, ": there is no host_dead_hook.")
			}
		}
		return
	case len(argv) == 1 && strings.ContainsAny(argv[0], " \t"):
		l.refuse(key, argv[0], fmt.Sprintf("write it as a list, [%s]; no shell is involved", strings.Join(strings.Fields(argv[0]), ", ")))
		return
	}
	if i := slices.IndexFunc(argv, hasNUL); i >= 0 {
		l.refuse(key, argv[i], errNUL.Error())
		return
	}
	if argv[0] == "" {
		l.refuse(key, "", "names no program; write the program first")
		return
	}
	l.result.HostDeadHook = argv
}

// errNUL refuses what hasNUL.
var errNUL = errors.New("must not hold NUL bytes, no program can be given one")

func hasNUL(arg string) bool { return strings.ContainsRune(arg, 0) }
