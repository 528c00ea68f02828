package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	moveDueScript       = rdb.NewScript(Lua, "move_due", "lib/base", "lib/payload", "lib/payload_functions", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/delayed_item", "move_due")
	failMalformedScript = rdb.NewScript(Lua, "fail_malformed", "lib/base", "lib/records", "lib/rights", "lib/parked", "lib/format", "fail_malformed")
)

// Due is the result of MoveDue.
type Due struct {
	// Moved is how many delayed jobs went to their queues, Dropped how many were duplicates of a job in a
	// unique queue.
	Moved, Dropped int
	// More: others are due now. Otherwise the next one is due in Next; 0 = none waits.
	More bool
	Next time.Duration
	// Wrong names keys of the wrong type: of delayed jobs, which are skipped, or of queues, whose jobs are
	// retried in a few seconds.
	Wrong []string
	// Malformed entries are not jobs. They stay until FailMalformed.
	Malformed []MalformedItem
	// Masters is how many there are; 0 = unknown, also if jobs are due.
	Masters int
}

// MalformedItem is an entry of the delayed jobs that is not a job.
type MalformedItem struct {
	key  string
	Item []byte
}

// askedRounds bounds how often one MoveDue may be asked which queues are unique.
const askedRounds = 20

// Helper is the name of callers that move a few jobs along with other work. They respect others' turns and take
// none: a turn would block the others until their next call.
const Helper = "-"

// dueJobs bounds the jobs that one call moves, to take about a millisecond.
const dueJobs = 100

// MoveDue moves due jobs to their queues, at most about 100 per call. Each is moved once, even if other
// processes move jobs. unique reports whether a queue is unique; nil = none is, whatever keys of unique queues
// exist.
//
// Callers take turns: while one has many jobs to move, MoveDue does nothing for other names, and Next is when
// to ask again. Without a name, it always moves.
func (s *Store) MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (Due, error) {
	rule := "?"
	if unique == nil {
		rule = "-"
	}
	args := []any{s.db.Prefix, dueJobs, rule, caller}
	for range askedRounds {
		list, err := s.db.EvalList(ctx, moveDueScript, s.db.Key(rdb.KeyDelayed), args, 7)
		if err != nil {
			return Due{}, fmt.Errorf("move delayed jobs: %w", err)
		}
		asked := list.Texts(3)
		if len(asked) == 0 || unique == nil {
			return parseDue(list), nil
		}
		for _, queue := range asked {
			args = append(args, queue, rdb.Flag(unique(queue)))
		}
	}
	return Due{More: true}, nil
}

func parseDue(list rdb.List) Due {
	wait := list.Number(2)
	due := Due{
		Moved: int(list.Number(0)), Dropped: int(list.Number(1)), Wrong: list.Texts(4), Masters: int(list.Number(6)),
		More: wait == 0, Next: time.Duration(max(wait, 0)) * time.Millisecond,
	}
	for key, item := range list.Pairs(5) {
		due.Malformed = append(due.Malformed, MalformedItem{key: key, Item: []byte(item)})
	}
	return due
}

// FailMalformed moves entries that are not jobs from the delayed to the failed jobs, each with the failure record
// made by record, and returns how many. id is the id under which an item is kept that is too large for its
// record. With lists, they go where Resque's multi-queue failure backend adds failures without a queue. If
// another process has written in a format that this program does not read, unknown members of resqued:delayed
// stay: they may be its jobs.
func (s *Store) FailMalformed(ctx context.Context, malformed []MalformedItem, lists bool, record func(item []byte, id string) FiledFailure) (int, error) {
	args := make([]any, 0, 4+4*len(malformed))
	args = append(args, s.db.Prefix, letters(lists, 'm'), rdb.Known().Oldest, rdb.Known().Newest)
	for _, m := range malformed {
		id := "misfit#" + rand.Text()
		f := record(m.Item, id)
		if f.Reference == nil {
			id = ""
		} else {
			f.keep() // not a payload, so it is only kept for this record
		}
		args = append(args, m.key, m.Item, f.text(), id)
	}
	raw, err := s.db.Eval(ctx, failMalformedScript, s.db.Key(keyFailed), args)
	if err != nil {
		return 0, fmt.Errorf("record what is not a delayed job as failed: %w", err)
	}
	return int(rdb.Number(raw)), nil
}

const requeuedMost = 20_000

// DelayedQueues returns the queues of jobs that wait to run again because their handler asked for it. Of very
// many waiting jobs it only reads the first ones. Jobs enqueued to run later do not count.
func (s *Store) DelayedQueues(ctx context.Context) ([]string, error) {
	var queues []string
	read := 0
	for z, err := range s.rising(ctx, s.db.Key(rdb.KeyDelayed), math.Inf(-1), 0) {
		if read++; err != nil || read > requeuedMost {
			return queues, err
		}
		requeued := !strings.HasPrefix(z.member, laterID) && !strings.HasPrefix(z.member, stuckID)
		if queue, _, ok := parseDelayed(z.member); ok && requeued && !slices.Contains(queues, queue) {
			queues = append(queues, queue)
		}
	}
	return queues, nil
}

// parseDelayed reads a member of resqued:delayed; rdb/lua/lib/records.lua writes it.
func parseDelayed(member string) (queue, payload string, ok bool) {
	_, rest, _ := strings.Cut(member, " ")
	size, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(strings.TrimSuffix(size, "u"))
	if err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
