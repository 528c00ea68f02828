package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	orphansScript    = rdb.NewScript(Lua, "orphans", "lib/base", "lib/records", "lib/blocked_queues", "lib/grace", "lib/deaths", "lib/pruned", "lib/format", "orphans")
	putMasterScript  = rdb.NewScript(Lua, "put_master", "put_master")
	dropMasterScript = rdb.NewScript(Lua, "drop_master", "drop_master")
	fenceScript      = rdb.NewScript(Lua, "fence", "lib/base", "lib/grace", "lib/format", "fence")
	recoverScript    = rdb.NewScript(Lua, "recover", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/limits", "lib/line_locks", "lib/unique", "lib/place", "lib/forget_process", "lib/parked", "lib/deaths", "recover")
)

// ErrAlive: the process is not fenced, or its lease has not expired; its jobs must not be touched.
var ErrAlive = errors.New("the process still has its lease")

// Around is what a master sees of other processes.
type Around struct {
	// Now is the server's time.
	Now time.Time
	// Orphans are at most 150 processes with an expired lease; of very many fenced ones with unreadable
	// records, different ones each time. After a silence of all processes (an outage of Redis, a jump of
	// its clock), there are none for one lease.
	Orphans []string
	// Others are masters with different settings: ids, and the digests of what they share.
	Others map[string]string
	// Unread are masters, and processes with an expired lease, that write in a format which this program
	// does not read. They are not among the Orphans.
	Unread []Unread
	// Local are the registered processes of the caller's place, with any lease, sorted.
	Local []string
}

// Unread is a master or a process that writes in a format which this program does not read.
type Unread struct {
	// ID is the master's id or the process's name.
	ID                    string
	Format, Version, Host string
}

// LookAround finds dead processes, masters with another digest of the settings that a fleet shares ("" = the
// caller has none), and the processes of a place, a host and its boot. Of many masters it checks some,
// different ones each time. self is the calling master's id: until a fenced process's own master is gone, only
// that master sees it as an orphan; with "", the caller does, too.
func (s *Store) LookAround(ctx context.Context, digest, place, self string) (Around, error) {
	opts := s.opts.Load()
	list, err := s.db.EvalList(ctx, orphansScript, s.db.Key(keyProcs),
		[]any{s.db.Prefix, opts.Lease.Milliseconds(), opts.BeatEvery.Milliseconds(), digest, rdb.Known().Oldest, rdb.Known().Newest, place, self}, 5)
	if err != nil {
		return Around{}, err
	}
	a := Around{Now: time.UnixMilli(list.Number(0)), Orphans: list.Texts(2), Others: maps.Collect(list.Pairs(1)), Local: list.Texts(4)}
	slices.Sort(a.Local)
	for one := range slices.Chunk(list.Texts(3), 4) {
		a.Unread = append(a.Unread, Unread{ID: one[0], Format: one[1], Version: one[2], Host: one[3]})
	}
	return a, nil
}

// SettingsOf returns the settings that a master shares with its fleet, as it wrote them, and its host; "" if it
// is gone.
func (s *Store) SettingsOf(ctx context.Context, master string) (host, settings string, err error) {
	values, err := s.db.Read.HMGet(ctx, s.db.Key(keyMaster)+master, "host", "settings").Result()
	if err != nil || len(values) != 2 {
		return "", "", err
	}
	host, _ = values[0].(string)
	settings, _ = values[1].(string)
	return host, settings, nil
}

// ProcFields returns fields of a process's entry, without missing ones.
func (s *Store) ProcFields(ctx context.Context, proc string, names []string) (map[string]string, error) {
	values, err := s.db.Read.HMGet(ctx, s.db.Key(keyProcInfo)+proc, names...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the entry of %s: %w", proc, err)
	}
	return fieldsOf(names, values), nil
}

// Fence ends the lease of a process, so that its late packets change nothing, and returns the jobs that it
// held, oldest first. force: its death is certain; without force, ErrAlive protects a process with a valid
// lease. Unreadable records are named in bad and left alone. A *rdb.FormatError protects a process whose format
// this program does not read.
func (s *Store) Fence(ctx context.Context, proc string, force bool) (held []Reserved, bad []string, err error) {
	opts := s.opts.Load()
	told := map[string]bool{}
	for cursor := "0"; ; {
		raw, err := s.db.Eval(ctx, fenceScript, s.db.Key(rdb.KeyInflight)+proc, []any{
			s.db.Prefix, proc, rdb.Flag(force), opts.Lease.Milliseconds(), opts.BeatEvery.Milliseconds(), cursor, rdb.Known().Oldest, rdb.Known().Newest,
		})
		if err != nil {
			return nil, nil, err
		}
		list := rdb.Texts(raw)
		switch {
		case len(list) == 1 && list[0] == "ALIVE":
			return nil, nil, ErrAlive
		case len(list) == 4 && list[0] == "FORMAT":
			return nil, nil, &rdb.FormatError{What: "what " + proc + " has left", Format: list[1], By: list[2] + " on " + list[3]}
		case len(list) < 2 || list[0] != "OK":
			return nil, nil, fmt.Errorf("script fence: unexpected reply %v", raw)
		}
		cursor = list[1]
		for i := 2; i+2 < len(list); i += 3 {
			if told[list[i]] {
				continue
			}
			told[list[i]] = true
			job, err := ParseRecord(list[i], list[i+1])
			if err != nil {
				bad = append(bad, list[i])
				continue
			}
			if r, ok := parseKill(list[i+2]); ok {
				job.Kill = &r
			}
			held = append(held, job)
		}
		if cursor == "0" {
			break
		}
	}
	slices.SortFunc(held, func(a, b Reserved) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(len(a.Token), len(b.Token)), strings.Compare(a.Token, b.Token))
	})
	return held, bad, nil
}

const recoverBatch = 100

// Recover carries out the verdicts on the jobs of a fenced process, each at most once, frees their locks, and
// removes the process with its last record. Pass the oldest job first: the jobs return to the head of their
// queues in that order.
//
// It sets Failed in the verdicts, even if it returns an error.
//
// A job that could not be moved (a queue or the failed list is not a list) is parked if its verdict says so.
// Otherwise it stays recorded and is named in the error.
func (s *Store) Recover(ctx context.Context, proc string, verdicts []Verdict) error {
	return s.recover(ctx, proc, verdicts, false)
}

// Bury is Recover for a living process that reports a job whose runner has died. It may be repeated. It returns
// ErrFenced if others handle the process's jobs.
func (s *Store) Bury(ctx context.Context, proc string, v Verdict) error {
	return s.recover(ctx, proc, []Verdict{v}, true)
}

func (s *Store) recover(ctx context.Context, proc string, verdicts []Verdict, own bool) error {
	var left error // one that cannot be moved does not block the others
	// Newest first, because each goes to the head.
	for end := len(verdicts); ; end -= recoverBatch {
		batch := verdicts[max(0, end-recoverBatch):max(0, end)]
		args := []any{s.db.Prefix, proc, rdb.Flag(own)}
		for _, b := range slices.Backward(batch) {
			s.fit(ctx, &b.Failure, b.Payload)
			gap, large := b.Failure.flags()
			action := b.Action
			if action == Fail && b.Listed {
				action = failListed // if a queue's name makes that impossible, the script uses failed
			}
			args = append(args, b.Token, string(rune(action)), b.Failure.text(), b.Kill.encode(), strings.Join(b.Counts, " "),
				letters(gap, 'g', large, 'l', b.Park, 'x'))
		}
		list, err := s.db.EvalList(ctx, recoverScript, s.db.Key(rdb.KeyInflight)+proc, args, 1, 4)
		switch {
		case err != nil:
			return err
		case len(list) == 1 && own:
			return ErrFenced
		case len(list) == 1:
			return ErrAlive
		}
		failed := list.Texts(3)
		for i := range batch {
			batch[i].Failed = batch[i].Failed || slices.Contains(failed, batch[i].Token)
		}
		if reason := list.Text(2); reason != "" {
			left = fmt.Errorf("recover %s: %d records left: %s", proc, list.Number(0), reason)
		}
		if end <= recoverBatch {
			return left
		}
	}
}

// PutMaster writes or renews a master's entry and its answers to orders, and returns its pending orders. They
// are taken: no other call returns them.
func (s *Store) PutMaster(ctx context.Context, m MasterInfo) ([]Order, error) {
	args := []any{s.db.Key(keyMasters), m.ID, m.TTL.Milliseconds(), s.db.Key(keyOrders) + m.ID, s.db.Key(keyOrdered) + m.ID, len(m.Answers)}
	for id, answer := range m.Answers {
		args = append(args, id, answer.encode())
	}
	raw, err := s.db.Eval(ctx, putMasterScript, s.db.Key(keyMaster)+m.ID, append(args, pairs(formatted(m.Fields))...))
	if err != nil {
		return nil, err
	}
	return parseOrders(rdb.Texts(raw)), nil
}

// DropMaster removes a master's entry. If it was the last one, it returns how many jobs wait in lines, which
// workers of other programs do not check.
func (s *Store) DropMaster(ctx context.Context, id string) (lined int64, err error) {
	raw, err := s.db.Eval(ctx, dropMasterScript, s.db.Key(keyMaster)+id, []any{s.db.Key(keyMasters), id, s.db.Key(keyLined)})
	return rdb.Number(raw), err
}
