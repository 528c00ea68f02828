package workerproc

import (
	"slices"

	"github.com/resqued/resqued/internal/store"
)

// manyQueues is how many queue names an exchange may carry. Of more, it carries only those with
// jobs at the last poll.
const manyQueues = 64

// candidates are the queues that exchanges try. The loop owns all fields.
type candidates struct {
	*shared
	polled    bool          // a first poll of all queues is complete
	waiting   []string      // queues with jobs, as of the last complete poll
	queues    []store.Queue // those to try, in order of priority
	early     bool          // they are from before the process's turn, and it has not looked since
	skippable int           // how many queues precede that of the last job taken
	passed    int           // queues that exchanges have tried in vain since the last resolve
}

func (c *candidates) saw(waiting []string) {
	c.waiting, c.polled = waiting, true
	c.resolve()
}

// add adds a queue that now holds something, unless the first poll is yet to come.
func (c *candidates) add(queue string) {
	if i, found := slices.BinarySearch(c.waiting, queue); c.polled && !found {
		c.waiting = slices.Insert(slices.Clone(c.waiting), i, queue)
		c.resolve()
	}
}

// resolve updates the queues to try, in order of priority, from the last poll.
func (c *candidates) resolve() {
	choices := c.cfg.Queues.Resolve(c.waiting)
	queues := make([]store.Queue, 0, len(choices))
	for _, choice := range choices {
		if len(choices) > manyQueues {
			if _, waits := slices.BinarySearch(c.waiting, choice.Queue); !waits {
				continue
			}
		}
		locked, unique := c.cfg.Locketed(choice.Queue), c.cfg.Unique(choice.Queue)
		fair := c.fair(choice.Queue)
		queues = append(queues, store.Queue{
			Name: choice.Queue, Cap: choice.Cap, Locked: locked, Named: locked && c.cfg.NamedLocks, Lined: (locked || fair != nil) && c.cfg.Lined, Fair: fair,
			Unique: unique, Strict: unique && c.cfg.StrictUnique,
		})
	}
	c.queues, c.skippable, c.passed = queues, 0, 0
}

// fair returns how a queue's tenants take turns, nil if they do not.
func (c *candidates) fair(queue string) *store.Fair {
	if !c.cfg.Lined {
		return nil
	}
	if f := c.cfg.Fair[queue]; f != nil {
		return f
	}
	return c.cfg.Fair["*"]
}

// lookedBefore reports whether a process whose turn comes already knows queues with jobs, so
// that it can ask at once.
func (c *candidates) lookedBefore() bool {
	c.early = c.polled && len(c.queues) > 0
	return c.early
}

// shouldLook notes how many queues precede the one of the first job, and reports whether to look
// at all queues. That is due when exchanges have tried more queues in vain than a look costs; it
// leaves the empty ones out. It is also due when a call got too few jobs from queues found
// before the process's turn.
func (c *candidates) shouldLook(r *exchangeResult) bool {
	look := c.passOver(r.reply.Jobs) || c.early && len(r.req.Wants) > len(r.reply.Jobs)
	c.early = false
	return look
}

// passOver reports whether exchanges have tried too many queues in vain.
func (c *candidates) passOver(jobs []store.Reserved) (look bool) {
	if len(jobs) == 0 {
		return false
	}
	c.skippable = max(0, slices.IndexFunc(c.queues, func(q store.Queue) bool { return q.Name == jobs[0].Queue }))
	if len(c.queues) <= manyQueues {
		return false
	}
	c.passed += c.skippable
	if c.passed <= 2*len(c.queues) {
		return false
	}
	c.passed = 0
	return true
}
