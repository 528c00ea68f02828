package tuning

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestHoldBallast has processes of its own: all that runs in one has the same heap.
func TestHoldBallast(t *testing.T) {
	t.Parallel()
	part := func(env string) (goal, touched int) {
		_, err := fmt.Sscan(start(t, "ballast", env).Line(t), &goal, &touched)
		require.NoError(t, err)
		return goal, touched
	}
	goal, touched := part("GOGC=")
	require.GreaterOrEqual(t, goal, ballastSize, "the collector comes later")
	// Where the heap happens to have as much to give that was in use before, Go clears it.
	for range 3 {
		if touched > ballastSize/2 {
			_, touched = part("GOGC=")
		}
	}
	// A huge page at either end may be in use for what lies beside the ballast.
	require.LessOrEqual(t, touched, ballastSize/2, "it takes no memory")

	goal, _ = part("GOGC=100")
	require.Less(t, goal, ballastSize, "it was set")
}

// ballastPart prints by how much HoldBallast raises the size at which the garbage collector
// comes, and how many bytes of a ballast are in memory.
func ballastPart() int {
	goal := func() int {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	before := goal()
	defer HoldBallast()()
	if os.Getenv("GOGC") == "" {
		// Its cleanup runs a while after the first collection.
		for end := time.Now().Add(20 * time.Second); goal() < before+ballastSize && time.Now().Before(end); {
			<-time.After(time.Millisecond)
		}
	}
	after := goal()

	var b ballast
	defer b.drop()
	b.take()
	for end := time.Now().Add(20 * time.Second); b.memory.Load() == nil && time.Now().Before(end); {
		runtime.GC()
		<-time.After(time.Millisecond)
	}
	fmt.Println(after-before, resident(*b.memory.Load()))
	return 0
}

// resident is how many bytes of it are in memory: that of the process as a whole grows by
// what the race detector and the collector keep, too.
func resident(memory []byte) (n int) {
	size := os.Getpagesize()
	pages := make([]byte, len(memory)/size)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE,
		uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		panic(errno)
	}
	for _, page := range pages {
		n += int(page&1) * size
	}
	return n
}
