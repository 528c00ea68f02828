package schedule

import (
	"encoding/json"
	"fmt"

	"github.com/resqued/resqued"
)

// OfClasses returns the schedules of the classes that have an interval (Class.Every).
func OfClasses(h *resqued.Handlers) []Definition {
	var own []Definition
	for _, name := range h.Classes() {
		class, _ := h.Lookup(name)
		if class.Every == 0 {
			continue
		}
		own = append(own, Definition{
			Name: name, Class: name, Queue: class.Queue, Args: json.RawMessage("[]"), Every: fmt.Sprintf("%ds", int64(class.Every.Seconds())),
			FirstIn: "1s", IfRunning: IfRunningSkip,
		})
	}
	return own
}
