package top

import (
	"time"

	"github.com/resqued/resqued/internal/view"
)

// rates are what two snapshots tell of speeds, in jobs by the second.
type rates struct {
	// done and failed are nil if they are not known.
	done, failed *float64
	// out is how fast queues get shorter: less than what was taken out, by what was pushed
	// meanwhile.
	out map[string]float64
	// process is by the process, from one of its beats to the next.
	process map[string]float64

	beats map[string]beat
}

// beat is what a process has last said.
type beat struct {
	at   time.Time
	done int
}

// after returns the rates from one snapshot to the next; before is nil at first.
func (r *rates) after(before, now *view.Snapshot) rates {
	next := rates{out: map[string]float64{}, process: map[string]float64{}, beats: map[string]beat{}}
	for _, w := range now.Workers {
		for _, p := range w.Processes {
			said, known := r.beats[p.Proc]
			switch passed := p.Beat.Sub(said.at).Seconds(); {
			case known && passed > 0.05 && p.Done >= said.done:
				next.process[p.Proc] = float64(p.Done-said.done) / passed
				said = beat{p.Beat, p.Done}
			case known && p.Done >= said.done: // no beat since
				if rate, ok := r.process[p.Proc]; ok {
					next.process[p.Proc] = rate
				}
			default:
				said = beat{p.Beat, p.Done}
			}
			next.beats[p.Proc] = said
		}
	}
	if before == nil {
		return next
	}
	passed := now.At.Sub(before.At).Seconds()
	if passed <= 0 {
		return next
	}
	next.done = view.GrowthRate(before.Processed, now.Processed, passed)
	next.failed = view.GrowthRate(before.Failed, now.Failed, passed)
	sizes := map[string]int64{}
	for _, q := range before.Queues {
		if q.Size != nil {
			sizes[q.Queue] = *q.Size
		}
	}
	for _, q := range now.Queues {
		if size, ok := sizes[q.Queue]; ok && q.Size != nil {
			next.out[q.Queue] = float64(size-*q.Size) / passed
		}
	}
	return next
}
