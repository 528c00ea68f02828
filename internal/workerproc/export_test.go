package workerproc

import "time"

// The master removes what a killed process leaves in Redis. The tests of one process have no
// master, so this long timeout lets the process do it itself on a busy machine.
func init() { hurried = time.Minute }
