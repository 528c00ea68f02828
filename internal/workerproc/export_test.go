package workerproc

import "time"

// What a killed process leaves in Redis its master removes, and the tests of one process
// have none that would: a busy machine must not take it the time to do so itself.
func init() { hurried = time.Minute }
