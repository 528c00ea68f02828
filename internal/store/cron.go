package store

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // as script.go
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

var (
	schedulesScript = rdb.NewScript(Lua, "schedules", "lib/base", "lib/rights", "lib/scheduler_lock", "schedules")
	tickScript      = rdb.NewScript(Lua, "tick", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/classlock", "lib/scheduler_lock", "tick")
)

// The values of CronRecord.Outcome: the fate of a schedule's last tick.
const (
	TickNew       = "new" // there was none before
	TickEnqueued  = "enqueued"
	TickSkipped   = "skipped"   // a job of the schedule had not ended
	TickDuplicate = "duplicate" // an equal job waited in its unique queue
	TickMissed    = "missed"    // noticed too late
)

// CronRecord is the state of a schedule.
type CronRecord struct {
	// Raw is the stored record; empty = none.
	Raw string
	// Fingerprint identifies the timing, Job what is enqueued; Since is when their configuration was
	// read.
	Fingerprint, Job string
	Since            time.Time
	// From is the time up to which ticks are handled.
	From time.Time
	// Tick is the last handled tick, Seen when it was handled; zero if there was none.
	Tick, Seen time.Time
	Outcome    string
}

func parseCronRecord(raw string) CronRecord {
	r := CronRecord{Raw: raw}
	f := strings.Fields(raw)
	if len(f) != 9 || f[0] != "1" {
		return r
	}
	at := func(text string) time.Time {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms != 0 {
			return time.UnixMilli(ms)
		}
		return time.Time{}
	}
	r.Fingerprint, r.Job, _ = strings.Cut(f[1], "-")
	r.Since, r.From, r.Tick, r.Seen, r.Outcome = at(f[2]), at(f[3]), at(f[4]), at(f[5]), f[6]
	return r
}

// SchedulerLock is resque-scheduler's master lock. If a Ruby scheduler has the same schedules, only the lock's
// holder enqueues their jobs. The zero value means no lock.
type SchedulerLock struct {
	// Prefix is the Ruby schedulers' RESQUE_SCHEDULER_MASTER_LOCK_PREFIX.
	Prefix string
	// Me is the name under which this process holds the lock.
	Me string
}

// schedulerLockKey returns the key of the master lock. It contains the namespace twice, because Ruby's client
// and the gem both add it.
func (s *Store) schedulerLockKey(c SchedulerLock) string {
	if c.Me == "" {
		return ""
	}
	name := "resque_scheduler_master_lock"
	if c.Prefix != "" {
		name = c.Prefix + ":" + name
	}
	return s.db.Key(s.opts.Load().Namespace + ":" + name)
}

// SchedulesRequest asks for the state of schedules.
type SchedulesRequest struct {
	// Prints identify the caller's definitions of Names; see CronPrint.
	Names, Prints []string
	// Keeper notes that it has those of Names whose definition is current, if the last note is older than
	// Renew; empty = not a daemon.
	Keeper string
	Renew  time.Duration
	// Stored also asks for the schedules kept in Redis; Digest identifies the known ones, from the last
	// reply.
	Stored        bool
	Digest        string
	SchedulerLock SchedulerLock
}

// SchedulesReply answers Schedules.
type SchedulesReply struct {
	// Now is the server's time.
	Now time.Time
	// InCharge: no other scheduler holds the master lock; otherwise Holder does.
	InCharge bool
	Holder   string
	// Stored are the definitions in Redis by name, nil if unchanged.
	Stored map[string]string
	Digest string
	// Records are in the order of Names.
	Records []CronRecord
	// Last is when any scheduler last enqueued their jobs; zero = unknown.
	Last []time.Time
	// Kept are notes of daemons that have a schedule, by name.
	Kept map[string]KeptNote
}

// KeptNote says which daemon last had a schedule. Raw differs from note to note.
type KeptNote struct{ Raw, Keeper string }

// CronPrint identifies a schedule's definition: its times and what it enqueues.
func CronPrint(timing, job string) string { return timing + "-" + job }

// Schedules returns the state of schedules. With a SchedulerLock it takes or keeps the master lock.
func (s *Store) Schedules(ctx context.Context, req SchedulesRequest) (SchedulesReply, error) {
	known := "-"
	if req.Stored {
		known = req.Digest
	}
	args := []any{s.db.Prefix, known, s.schedulerLockKey(req.SchedulerLock), req.SchedulerLock.Me, req.Keeper, req.Renew.Milliseconds()}
	for i, name := range req.Names {
		print := ""
		if i < len(req.Prints) {
			print = req.Prints[i]
		}
		args = append(args, name, print)
	}
	list, err := s.db.EvalList(ctx, schedulesScript, s.db.Key(keyStored), args, 8)
	if err != nil {
		return SchedulesReply{}, err
	}
	r := SchedulesReply{Now: time.UnixMilli(list.Number(0)), InCharge: list.Number(1) == 1, Holder: list.Text(2), Digest: list.Text(3)}
	switch {
	case !req.Stored:
	case r.Digest == manyStored:
		all := map[string]string{}
		if err := s.eachField(ctx, keyStored, func(name, definition string) { all[name] = definition }); err != nil {
			return SchedulesReply{}, err
		}
		if r.Digest = digestOf(all); r.Digest != req.Digest {
			r.Stored = all
		}
	case r.Digest != req.Digest:
		r.Stored = maps.Collect(list.Pairs(4))
	}
	for _, record := range list.Texts(5) {
		r.Records = append(r.Records, parseCronRecord(record))
	}
	for _, last := range list.Texts(6) {
		r.Last = append(r.Last, wire.ParseStart(last))
	}
	r.Kept = map[string]KeptNote{}
	for name, note := range list.Pairs(7) {
		_, keeper, _ := strings.Cut(note, " ")
		r.Kept[name] = KeptNote{Raw: note, Keeper: keeper}
	}
	if len(r.Records) != len(req.Names) || len(r.Last) != len(req.Names) {
		return SchedulesReply{}, fmt.Errorf("script schedules: %d records for %d names", len(r.Records), len(req.Names))
	}
	return r, nil
}

// manyStored is the digest if Redis has too many schedules for one script.
const manyStored = "many"

func sum1(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as script.go
	return hex.EncodeToString(sum[:])
}

// digestOf is the digest of all schedules, as lua/schedules.lua computes it.
func digestOf(all map[string]string) string {
	sums := make([]string, 0, len(all))
	for name, definition := range all {
		sums = append(sums, sum1(name)+sum1(definition))
	}
	slices.Sort(sums)
	return sum1(strings.Join(sums, ""))
}

// The values of TickReply.Status. Only TickDone has done anything.
const (
	TickDone    = "DONE"
	TickChanged = "CHANGED" // Record differs from the known one
	TickEarly   = "EARLY"   // the server's time, Now, is before the tick
	TickGone    = "GONE"    // the definition in Redis has changed or is gone
	TickHeld    = "HELD"    // another scheduler is in charge: Holder
	TickStuck   = "STUCK"   // a key has the wrong type: Reason
)

// TickRequest is an update of a schedule.
type TickRequest struct {
	Name string
	// Known is the record from which the request was computed.
	Known CronRecord
	// Print and Since are for the new record.
	Print string
	Since time.Time
	// Claim only updates these two in the record: the times are unchanged.
	Claim bool
	// Tick is the last tick handled by this call. Zero: the schedule begins, with the ticks after From,
	// which defaults to the server's time.
	Tick, From time.Time
	// Missed is how many ticks are skipped, Jobs for how many jobs are enqueued.
	Missed, Jobs int

	Queue          string
	Payload        []byte
	Unique, Strict bool
	// IfRunning is queue, unique or skip; see package schedule.
	IfRunning string
	// Stored is the definition that must still be in Redis; empty = not kept there.
	Stored string
	// Shown is the schedule for people, as JSON; empty = unchanged.
	Shown         string
	SchedulerLock SchedulerLock
	// Keeper is noted as in SchedulesRequest if the schedule begins or its record gets this Print.
	Keeper string
}

// TickReply answers Tick.
type TickReply struct {
	Status                        string
	Now                           time.Time
	Record                        CronRecord
	Holder, Reason                string
	Enqueued, Skipped, Duplicates int
}

// Tick handles ticks of a schedule in one step: of all callers with the same record, one succeeds. After an
// error the outcome is unknown unless Unexecuted; it may be repeated, because a written record differs.
func (s *Store) Tick(ctx context.Context, req TickRequest) (TickReply, error) {
	tick, from := millis(req.Tick), millis(req.From)
	if !req.Tick.IsZero() {
		from = tick
	}
	list, err := s.db.EvalList(ctx, tickScript, s.db.Key(keyCron), []any{
		s.db.Prefix, req.Name, req.Known.Raw, req.Print, req.Since.UnixMilli(), tick, from, req.Missed, req.Jobs,
		req.Queue, req.Payload, letters(req.Unique, 'u', req.Unique && req.Strict, 's', req.Claim, 'c'), req.IfRunning,
		req.Stored, req.Shown, wire.FormatStart(time.Now()), s.schedulerLockKey(req.SchedulerLock), req.SchedulerLock.Me, req.Keeper,
	}, 2, 3, 6)
	if err != nil {
		return TickReply{}, fmt.Errorf("schedule %q: %w", req.Name, err)
	}
	r := TickReply{Status: list.Text(0), Now: time.UnixMilli(list.Number(1))}
	switch {
	case r.Status == TickDone && len(list) == 6:
		r.Record = parseCronRecord(list.Text(2))
		r.Enqueued, r.Skipped, r.Duplicates = int(list.Number(3)), int(list.Number(4)), int(list.Number(5))
	case r.Status == TickChanged && len(list) == 3:
		r.Record = parseCronRecord(list.Text(2))
	case r.Status == TickHeld && len(list) == 3:
		r.Holder = list.Text(2)
	case r.Status == TickStuck && len(list) == 3:
		r.Reason = list.Text(2)
	case r.Status == TickEarly, r.Status == TickGone:
	default:
		return TickReply{}, fmt.Errorf("script tick: unexpected reply %v", list)
	}
	return r, nil
}

func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// ReleaseSchedulerLock releases the master lock if it is ours, so that others need not wait for its expiry.
func (s *Store) ReleaseSchedulerLock(ctx context.Context, c SchedulerLock) error {
	_, err := s.db.Eval(ctx, schedulerLeaveScript, s.schedulerLockKey(c), []any{s.db.Prefix, c.Me})
	return err
}

var schedulerLeaveScript = rdb.NewScript(Lua, "scheduler_leave", "lib/base", "scheduler_leave")

// keptEnd ends the definition for people of a schedule kept in Redis; see
// lua/forget_schedules.lua.
const keptEnd = `,"kept":true}`

// Kept marks a definition for people, a JSON object, as kept in Redis: once removed there, it does not exist
// elsewhere.
func Kept(shown []byte) []byte { return append(shown[:len(shown)-1:len(shown)-1], keptEnd...) }

// ForgetRemoved forgets schedules that were removed from Redis, and the schedules in left, which no daemon has
// any more, if their notes are unchanged.
func (s *Store) ForgetRemoved(ctx context.Context, left map[string]KeptNote) error {
	var gone []any
	for name, note := range left {
		gone = append(gone, name, note.Raw)
	}
	for cursor := "0"; ; gone = nil {
		raw, err := s.db.Eval(ctx, forgetSchedulesScript, s.db.Key(keyShown), append([]any{s.db.Prefix, cursor}, gone...))
		if err != nil {
			return err
		}
		if cursor, _ = raw.(string); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

var forgetSchedulesScript = rdb.NewScript(Lua, "forget_schedules", "lib/base", "lib/rights", "forget_schedules")

// CronView is a schedule in Redis.
type CronView struct {
	CronRecord
	// Shown is its definition for people, Stored the one kept in Redis; empty if missing.
	Shown, Stored string
}

// CronViews returns all schedules in Redis by name, and the server's time.
func (s *Store) CronViews(ctx context.Context) (views map[string]CronView, now time.Time, err error) {
	pipe := s.db.Read.Pipeline()
	clock := pipe.Time(ctx)
	hashes := make([]*redis.MapStringStringCmd, 3)
	for i, key := range []string{keyCron, keyShown, keyStored} {
		hashes[i] = pipe.HGetAll(ctx, s.db.Key(key))
	}
	if _, err := pipe.Exec(ctx); err != nil && (rdb.Unreachable(err) || clock.Err() != nil) {
		return nil, now, fmt.Errorf("read schedules: %w", err)
	}
	views = map[string]CronView{}
	for i, hash := range hashes {
		if hash.Err() != nil {
			err = cmp.Or(err, fmt.Errorf("read %s: %w", []string{keyCron, keyShown, keyStored}[i], hash.Err()))
		}
		for name, text := range hash.Val() {
			v := views[name]
			switch i {
			case 0:
				v.CronRecord = parseCronRecord(text)
			case 1:
				v.Shown = text
				if kept, _ := hashes[2].Val()[name]; kept == "" && strings.HasSuffix(text, keptEnd) {
					v.Shown = "" // it was removed from Redis
				}
			case 2:
				v.Stored = text
			}
			views[name] = v
		}
	}
	return views, clock.Val(), err
}

// ForgetSchedule removes a schedule kept in Redis, as resque-scheduler does, and all its state. It reports
// whether there was any.
func (s *Store) ForgetSchedule(ctx context.Context, name string) (removed bool, err error) {
	var gone []*redis.IntCmd
	err = s.db.Once(ctx, func() error {
		gone = nil
		pipe := s.db.Write.TxPipeline()
		for _, key := range []string{keyStored, keyCron, keyShown, keyKept, keyLastEnqueued} {
			gone = append(gone, pipe.HDel(ctx, s.db.Key(key), name))
		}
		pipe.SAdd(ctx, s.db.Key(keyChanged), name) // a Ruby scheduler checks this key
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("remove schedule %q: %w", name, err)
	}
	for _, n := range gone {
		removed = removed || n.Val() > 0
	}
	return removed, nil
}
