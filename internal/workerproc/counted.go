package workerproc

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread"
)

// countedEvery is the shortest time between two messages with counts.
const countedEvery = time.Second

// counted are the ends of jobs that were not sent to the master yet, for the history. The loop
// owns all fields.
type counted struct {
	*shared
	sums history.Sums
	sent time.Time
}

// end counts the end of a job, or of one run of it. waited is 0 if unknown.
func (c *counted) end(class, queue string, result thread.Result, ran, waited time.Duration) {
	out := history.Processed
	switch result {
	case thread.Failed, thread.Retried:
		out |= history.Failed
	case thread.Interrupted:
		out |= history.Interrupted
	case thread.Dropped:
		out |= history.Unrun
	case thread.Discarded:
		if ran < 0 {
			out |= history.Unrun
		}
	case thread.Requeued:
		out = history.Unrun
	}
	if waited <= 0 || ran < 0 {
		waited = history.Unknown
	}
	c.sums.Add(class, queue, out, ran, waited)
}

func (c *counted) send() {
	if now := time.Now(); now.Sub(c.sent) >= countedEvery {
		c.sent = now
		c.sendAll()
	}
}

// sendAll sends the counts. Those that the master does not accept are sent later; without a
// master they are lost with this process.
func (c *counted) sendAll() {
	for !c.link.gone {
		packet := c.sums.Take()
		if packet == nil {
			return
		}
		if err := c.link.send(proc.Message{Type: proc.Counted, Sums: packet}); err != nil {
			if bad := c.sums.PutBack(packet); bad != nil {
				c.log.Error("the counts of jobs are lost", zap.Error(bad)) // unexpected: Take wrote it
			}
			return
		}
	}
}
