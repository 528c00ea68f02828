package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var enqueueLaterScript = rdb.NewScript(Lua, "enqueue_later", "lib/base", "lib/payload", "lib/payload_functions", "lib/records", "lib/rights", "lib/unique", "lib/delay", "enqueue_later")

// Prefixes of ids in resqued:delayed of jobs that have not run: laterID for jobs enqueued to run later, stuckID
// for jobs that were due while their queue's key was not a list.
const (
	laterID = "later:"
	stuckID = "stuck:"
)

// Bounds of one script call for many jobs, to take the server about a millisecond.
const (
	batchJobs  = 500
	batchBytes = 1 << 20
)

// LaterJob is a job to enqueue later.
type LaterJob struct {
	Queue string
	// Payload must be one that wire.Parse accepts: others could stop a Ruby scheduler.
	Payload []byte
	// Unique: an equal payload waits in the queue at most once, which is checked when the job is due.
	Unique bool
	// In is how long the job waits, by the server's clock. At, if not zero, is used instead: the earliest run time.
	In time.Duration
	At time.Time
}

func (j *LaterJob) when() string {
	if j.At.IsZero() {
		return "+" + strconv.FormatInt(milliseconds(j.In), 10)
	}
	seconds := j.At.Unix()
	if seconds < 0 {
		return "0"
	}
	// Times may be too far away for a number of ms.
	at := min(seconds, maxEpoch-1)*1000 + roundUp(time.Duration(j.At.Nanosecond()), time.Millisecond)
	return strconv.FormatInt(at, 10)
}

// LaterReply is the outcome of a LaterJob.
type LaterReply struct {
	// Due is when the job goes to its queue, never before the requested time; zero if it was already
	// due.
	Due time.Time
	// Pushed: the job was due and is in its queue, now Length jobs long. If an equal job waits there, Due is
	// zero and Pushed false.
	Pushed bool
	Length int64
	// Err is why nothing was done with this job, or an error that is not Unexecuted: then the outcome
	// is unknown.
	Err error
}

// EnqueueLater enqueues jobs to run later, and answers for each. Jobs already due are pushed.
func (s *Store) EnqueueLater(ctx context.Context, jobs []LaterJob) []LaterReply {
	replies := make([]LaterReply, 0, len(jobs))
	// Jobs due together are ordered by their ids.
	id := newLaterID()
	for call := 0; len(jobs) > 0; call++ {
		n, size := 0, 0
		for n < len(jobs) && n < batchJobs && (n == 0 || size+len(jobs[n].Payload) <= batchBytes) {
			size += len(jobs[n].Payload)
			n++
		}
		replies = append(replies, s.enqueueLater(ctx, fmt.Sprintf("%s.%06d", id, call), jobs[:n])...)
		jobs = jobs[n:]
	}
	return replies
}

func (s *Store) enqueueLater(ctx context.Context, id string, jobs []LaterJob) []LaterReply {
	replies := make([]LaterReply, len(jobs))
	args := make([]any, 0, 2+4*len(jobs))
	args = append(args, s.db.Prefix, id)
	for i := range jobs {
		args = append(args, &jobs[i].Queue, jobs[i].Payload, rdb.Flag(jobs[i].Unique), jobs[i].when())
	}
	list, err := s.db.EvalList(ctx, enqueueLaterScript, s.db.Key(keySchedule), args, 3)
	if err == nil && (len(list.Text(0)) != len(jobs) || len(list.Texts(1)) != len(jobs)) {
		err = fmt.Errorf("script enqueue_later: unexpected reply %v for %d jobs", list, len(jobs))
	}
	if err != nil {
		for i := range replies {
			replies[i].Err = fmt.Errorf("enqueue to %q for later: %w", jobs[i].Queue, err)
		}
		return replies
	}
	numbers, reasons := list.Texts(1), list.Texts(2)
	for i, mark := range list.Text(0) {
		n, _ := strconv.ParseInt(numbers[i], 10, 64)
		switch mark {
		case 's', 'w':
			replies[i].Due = time.UnixMilli(n)
		case 'q':
			replies[i].Pushed, replies[i].Length = true, n
		case 'd':
		default:
			reason := "unknown reason"
			if len(reasons) > 0 {
				reason, reasons = reasons[0], reasons[1:]
			}
			replies[i].Err = fmt.Errorf("enqueue to %q for later: %w: %s", jobs[i].Queue, rdb.ErrRefused, reason)
		}
	}
	return replies
}

func newLaterID() string {
	id := make([]byte, 10)
	_, _ = rand.Read(id) // it never fails
	return laterID + hex.EncodeToString(id)
}
