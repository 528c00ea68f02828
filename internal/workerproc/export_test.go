package workerproc

import "time"

// The master removes what a killed process leaves in Redis. The tests of one process have no
// master, so this long timeout lets the process do it itself on a busy machine.
func init() { hurried = time.Minute }

// TickEvery lets a test wait for looks of the loop.
const TickEvery = 50 * time.Millisecond

// The loop looks more often than each second, so that tests wait less.
func init() {
	tickEvery, mirrorAfter, waitAgain = TickEvery, 2*TickEvery, 2*TickEvery
	askEvery, askAfter, tellEvery = 2*TickEvery, 2*TickEvery, 2*TickEvery
}
