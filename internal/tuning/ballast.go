package tuning

import (
	"os"
	"runtime"
	"sync/atomic"
)

// ballastSize is how much more than what is in use Go's garbage collector thinks there is.
const ballastSize = 8 << 20

// HoldBallast has the garbage collector come less often in a process whose heap is small.
// It comes when the heap has doubled: for the few MB of a worker process whose jobs keep
// nothing that is dozens of times a second. The ballast is memory in use for it, of which
// no page is ever touched, so that it takes none; where jobs keep much more than it, it
// changes nothing.
//
// To take it begins a collection. So it is taken when the first one is over: a process that
// leaves after a few jobs has none.
//
// A GOGC that is set holds. Call the function that is returned to drop the ballast.
func HoldBallast() (drop func()) {
	var b ballast
	if os.Getenv("GOGC") == "" {
		b.take()
	}
	return b.drop
}

// ballast is memory that is held and never touched.
type ballast struct{ memory atomic.Pointer[[]byte] }

// take has it held as soon as a garbage collection is over.
func (b *ballast) take() {
	unreachable := new([4]*byte) // the next collection finds that out
	runtime.AddCleanup(unreachable, func(size int) {
		memory := make([]byte, size)
		b.memory.Store(&memory)
	}, ballastSize)
}

func (b *ballast) drop() { b.memory.Store(nil) }
