package wire

import (
	"fmt"
	"strings"
)

// companions are what the keys of a unique queue end in that stand beside its list.
var companions = [...]string{":uniqueue", ":start_at"}

// CheckQueue refuses what cannot be the name of a queue: queue:mail:start_at is the list of the
// times of a unique queue called mail, and a job pushed there would be lost among them.
func CheckQueue(name string) error {
	for _, suffix := range companions {
		if owner, ok := strings.CutSuffix(name, suffix); ok {
			return fmt.Errorf("queue %q cannot be used: its key is that of the unique queue %q; choose a name that does not end in %s", name, owner, suffix)
		}
	}
	return nil
}
