package wire

import (
	"fmt"
	"strings"
)

// companions are the suffixes of a unique queue's other keys.
var companions = [...]string{":uniqueue", ":start_at"}

// CheckQueue rejects impossible queue names: queue:mail:start_at is the list of times of a unique
// queue called mail, so a job pushed there would be lost.
func CheckQueue(name string) error {
	for _, suffix := range companions {
		if owner, ok := strings.CutSuffix(name, suffix); ok {
			return fmt.Errorf("queue %q cannot be used: its key is that of the unique queue %q; choose a name that does not end in %s", name, owner, suffix)
		}
	}
	return nil
}
