package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	orphansScript    = rdb.NewScript(Lua, "orphans", "lib/base", "lib/records", "lib/blocked_queues", "lib/grace", "lib/deaths", "lib/pruned", "lib/format", "orphans")
	putMasterScript  = rdb.NewScript(Lua, "put_master", "put_master")
	dropMasterScript = rdb.NewScript(Lua, "drop_master", "drop_master")
	fenceScript      = rdb.NewScript(Lua, "fence", "lib/base", "lib/grace", "lib/format", "fence")
	recoverScript    = rdb.NewScript(Lua, "recover", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/line_locks", "lib/unique", "lib/place", "lib/forget_process", "lib/parked", "lib/deaths", "recover")
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
	raw, err := s.db.Eval(ctx, orphansScript, s.db.Key(keyProcs),
		[]any{s.db.Prefix, opts.Lease.Milliseconds(), opts.BeatEvery.Milliseconds(), digest, rdb.Known().Oldest, rdb.Known().Newest, place, self})
	list, _ := raw.([]any)
	if err != nil || len(list) != 5 {
		return Around{}, err
	}
	a := Around{Now: time.UnixMilli(rdb.Number(list[0])), Orphans: rdb.Texts(list[2]), Others: map[string]string{}, Local: rdb.Texts(list[4])}
	slices.Sort(a.Local)
	others := rdb.Texts(list[1])
	for i := 0; i+1 < len(others); i += 2 {
		a.Others[others[i]] = others[i+1]
	}
	unread := rdb.Texts(list[3])
	for i := 0; i+3 < len(unread); i += 4 {
		a.Unread = append(a.Unread, Unread{ID: unread[i], Format: unread[i+1], Version: unread[i+2], Host: unread[i+3]})
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
	fields := map[string]string{}
	for i, value := range values {
		if text, ok := value.(string); ok {
			fields[names[i]] = text
		}
	}
	return fields, nil
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
	sort.Slice(held, func(i, j int) bool {
		if !held[i].StartedAt.Equal(held[j].StartedAt) {
			return held[i].StartedAt.Before(held[j].StartedAt)
		}
		return len(held[i].Token) < len(held[j].Token) ||
			len(held[i].Token) == len(held[j].Token) && held[i].Token < held[j].Token
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
		raw, err := s.db.Eval(ctx, recoverScript, s.db.Key(rdb.KeyInflight)+proc, args)
		if err != nil {
			return err
		}
		list, _ := raw.([]any)
		if len(list) == 1 && own {
			return ErrFenced
		}
		if len(list) == 1 {
			return ErrAlive
		}
		if len(list) != 4 {
			return fmt.Errorf("script recover: unexpected reply %v", raw)
		}
		failed, _ := list[3].([]any)
		for _, token := range failed {
			if i := slices.IndexFunc(batch, func(v Verdict) bool { return v.Token == token }); i >= 0 {
				batch[i].Failed = true
			}
		}
		if reason, _ := list[2].(string); reason != "" {
			left = fmt.Errorf("recover %s: %d records left: %s", proc, rdb.Number(list[0]), reason)
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
