package tuning

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title       string
		limit, from int
		used        []float64
		want        int
	}{
		{"what waits has one", 8, 1, repeat(0.2, 100), 1},
		{"what fills it gets another", 8, 1, []float64{0.95, 0.95}, 2},
		{"a burst is no reason", 8, 1, []float64{0.95, 0.5, 0.95, 0.5, 0.95}, 1},
		{"twice as many each time", 8, 1, []float64{1, 1, 2, 2, 4, 4}, 8},
		{"no more than there are", 6, 4, repeat(6, 10), 6},
		{"one that is in use stays", 8, 2, repeat(0.7, 1000), 2},
		{"one that is not is given back", 8, 2, repeat(0.5, processorsLess), 1},
		{"not at once", 8, 2, repeat(0.5, processorsLess-1), 2},
		{"nor after a pause", 8, 2, append(append(repeat(0.5, processorsLess-1), 1.5), repeat(0.5, processorsLess-1)...), 2},
		{"one after the other", 8, 8, repeat(0, 3*processorsLess), 5},
		{"the last one stays", 8, 2, repeat(0, 10*processorsLess), 1},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			p := processors{limit: c.limit, now: c.from}
			for _, used := range c.used {
				p.look(used)
			}
			require.Equal(t, c.want, p.now)
		})
	}
}

func repeat(used float64, n int) (list []float64) {
	for range n {
		list = append(list, used)
	}
	return list
}

// TestFitProcessors has processes of its own: what they do counts for all that runs in one.
func TestFitProcessors(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() == 1 {
		t.Skip("there is one processor only")
	}
	p := start(t, "processors", "GOMAXPROCS=")
	require.Equal(t, "1", p.Line(t))
	require.Equal(t, "2", p.Line(t), "in use")
	require.Equal(t, "1", p.Line(t), "at rest")
	require.Equal(t, "3", p.Line(t), "what others have set stays")

	p = start(t, "processors", "GOMAXPROCS=2")
	require.Equal(t, "2", p.Line(t), "it was set")
}

func processorsPart() int {
	stop := FitProcessors()
	fmt.Println(runtime.GOMAXPROCS(0))
	stop()
	if os.Getenv("GOMAXPROCS") != "" {
		return 0
	}
	// The time that it seems to take is no matter of how busy the machine is.
	var busy atomic.Bool
	var taken time.Duration
	last := time.Now()
	seemingly := func() time.Duration {
		if now := time.Now(); busy.Load() {
			taken += 2 * now.Sub(last)
			last = now
		}
		return taken
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p := processors{limit: 2, now: 1}
	busy.Store(true)
	go func() {
		p.fit(ctx, seemingly)
		close(ended)
	}()
	until := func(n int) {
		for runtime.GOMAXPROCS(0) != n {
			<-time.After(time.Millisecond)
		}
		fmt.Println(n)
	}
	until(2)
	busy.Store(false)
	until(1)
	runtime.GOMAXPROCS(3)
	<-ended
	fmt.Println(runtime.GOMAXPROCS(0))
	cancel()
	return 0
}
