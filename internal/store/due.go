package store

import (
	"context"
	"crypto/rand"
	"fmt"
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

// Due is what a MoveDue has done.
type Due struct {
	// Moved is how many delayed jobs went to their queues, or were Dropped there because
	// an equal one waited.
	Moved, Dropped int
	// More: others are due now. Else the next one is in Next; 0 = none waits.
	More bool
	Next time.Duration
	// Wrong names keys that hold something else than they should: of delayed jobs, which
	// are passed over, or of queues, whose jobs are tried again in a few seconds.
	Wrong []string
	// Malformed entries are not jobs. They stay where they are until FailMalformed.
	Malformed []MalformedItem
	// Masters is how many there are; 0 = it is not known, as where jobs are due.
	Masters int
}

// MalformedItem is an entry of the delayed jobs that is not a job.
type MalformedItem struct {
	key  string
	Item []byte
}

// askedRounds bounds how often one MoveDue is asked which queues are unique.
const askedRounds = 20

// Helper is the name of callers that move a few jobs beside something else. They leave alone what is
// another's turn, and take none: who goes on only later would keep the others waiting meanwhile.
const Helper = "-"

// dueJobs is how many jobs a call moves at most: in about a millisecond.
const dueJobs = 100

// MoveDue moves delayed jobs whose time has come to their queues, at most about 100 of
// them in one call of the server. Each is moved once, even if other processes move jobs. unique
// reports whether a queue is; nil = none, whatever keys of unique queues there are.
//
// Callers take turns: while one has many jobs to move, MoveDue does nothing for those with another
// name, and Next is when they should ask again. Without a name it moves in any case.
func (s *Store) MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (Due, error) {
	rule := "?"
	if unique == nil {
		rule = "-"
	}
	args := []any{s.db.Prefix, dueJobs, rule, caller}
	for range askedRounds {
		raw, err := s.db.Eval(ctx, moveDueScript, s.db.Key(rdb.KeyDelayed), args)
		if err != nil {
			return Due{}, fmt.Errorf("move delayed jobs: %w", err)
		}
		list, _ := raw.([]any)
		if len(list) != 7 {
			return Due{}, fmt.Errorf("script move_due: unexpected reply %v", raw)
		}
		asked := rdb.Texts(list[3])
		if len(asked) == 0 || unique == nil {
			return parseDue(list), nil
		}
		for _, queue := range asked {
			args = append(args, queue, rdb.Flag(unique(queue)))
		}
	}
	return Due{More: true}, nil
}

func parseDue(list []any) Due {
	wait := rdb.Number(list[2])
	due := Due{Moved: int(rdb.Number(list[0])), Dropped: int(rdb.Number(list[1])), Wrong: rdb.Texts(list[4]), More: wait == 0, Masters: int(rdb.Number(list[6]))}
	if wait > 0 {
		due.Next = time.Duration(wait) * time.Millisecond
	}
	malformed := rdb.Texts(list[5])
	for i := 0; i+1 < len(malformed); i += 2 {
		due.Malformed = append(due.Malformed, MalformedItem{key: malformed[i], Item: []byte(malformed[i+1])})
	}
	return due
}

// FailMalformed moves what is not a job from the delayed jobs to the failed ones, each with
// the failure record that is made of it, and returns how many it has moved. record gets
// the id under which an item is kept that is too large for its record. With lists they
// go where Resque's multi-queue failure backend adds failures of no queue. Where processes have
// written in a format that this program does not read, it leaves alone what it does not know in
// resqued:delayed: it may be a job for them.
func (s *Store) FailMalformed(ctx context.Context, malformed []MalformedItem, lists bool, record func(item []byte, id string) FiledFailure) (int, error) {
	args := make([]any, 0, 4+4*len(malformed))
	args = append(args, s.db.Prefix, letters(lists, 'm'), rdb.Known().Oldest, rdb.Known().Newest)
	for _, m := range malformed {
		id := "misfit#" + rand.Text()
		f := record(m.Item, id)
		if f.Reference == nil {
			id = ""
		} else {
			f.keep() // it is not a payload, so it stands nowhere but in such a record
		}
		args = append(args, m.key, m.Item, f.text(), id)
	}
	raw, err := s.db.Eval(ctx, failMalformedScript, s.db.Key(keyFailed), args)
	if err != nil {
		return 0, fmt.Errorf("record what is not a delayed job as failed: %w", err)
	}
	return int(rdb.Number(raw)), nil
}

// Bounds of one DelayedQueues.
const (
	requeuedPages = 20
	requeuedPage  = 1000
)

// DelayedQueues names the queues of jobs that have run and wait to run again, because
// their handler asked for it; of very many waiting jobs it looks at the first ones. Those
// that were enqueued to run later are others.
func (s *Store) DelayedQueues(ctx context.Context) ([]string, error) {
	var queues []string
	for page := range int64(requeuedPages) {
		members, err := s.db.Read.ZRange(ctx, s.db.Key(rdb.KeyDelayed), page*requeuedPage, (page+1)*requeuedPage-1).Result()
		if err != nil {
			return nil, fmt.Errorf("list delayed jobs: %w", err)
		}
		for _, member := range members {
			if queue, _, ok := parseDelayed(member); ok && requeued(member) && !slices.Contains(queues, queue) {
				queues = append(queues, queue)
			}
		}
		if len(members) < requeuedPage {
			break
		}
	}
	return queues, nil
}

// requeued reports whether a member of resqued:delayed is of a job that has run.
func requeued(member string) bool {
	return !strings.HasPrefix(member, laterID) && !strings.HasPrefix(member, stuckID)
}

// parseDelayed reads a member of resqued:delayed, as rdb/lua/lib/records.lua writes it.
func parseDelayed(member string) (queue, payload string, ok bool) {
	_, rest, _ := strings.Cut(member, " ")
	size, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(strings.TrimSuffix(size, "u"))
	if err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
