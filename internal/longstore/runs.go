package longstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	addScript    = rdb.NewScript(Lua, "longjob_add", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "add")
	beginScript  = rdb.NewScript(Lua, "longjob_begin", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "lib/format", "begin")
	saveScript   = rdb.NewScript(Lua, "longjob_save", "lib/base", "lib/grace", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "save")
	cancelScript = rdb.NewScript(Lua, "longjob_cancel", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "cancel")
	againScript  = rdb.NewScript(Lua, "longjob_again", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "lib/format", "again")
	pauseScript  = rdb.NewScript(Lua, "longjob_pause", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "lib/format", "pause_run")
	resumeScript = rdb.NewScript(Lua, "longjob_resume", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/format", "resume_run")
	refuseScript = rdb.NewScript(Lua, "longjob_refuse", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/format", "refuse")
	forgetScript = rdb.NewScript(Lua, "longjob_forget", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/longjob", "forget")
	leaveScript  = rdb.NewScript(Lua, "longjob_leave", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "leave")
	turnScript   = rdb.NewScript(Lua, "longjob_turn", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "turn")
	lockScript   = rdb.NewScript(Lua, "longjob_lock", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/longjob", "lock")
)

// Way is how a run of a long job is enqueued.
type Way byte

// The ways; see lua/add.lua.
const (
	Always   Way = 'a'
	Unique   Way = 'u'
	Debounce Way = 'd'
)

// KeepSuperseded is how long a run is kept that is no longer the newest of its kind.
const KeepSuperseded = 15 * time.Minute

// NewRun is a run to enqueue.
type NewRun struct {
	UUID string
	// Kind groups runs of which only one counts at a time.
	Kind, Class string
	// Args is a JSON array.
	Args []byte
	// Queue is for the first slice, Again for the others; empty = the class's queue.
	Queue, Again string
	// Tenant owns the run; empty = no tenant.
	Tenant string
}

// Added is the outcome of a NewRun: 'n' (new), 'e' (one exists) or 'r' (one exists, and is followed by one
// more). UUID names the run that counts.
type Added struct {
	Outcome byte
	UUID    string
}

// AddRuns enqueues runs, all in one step. After an error the outcome is unknown unless
// rdb.Unexecuted.
func (s *Store) AddRuns(ctx context.Context, way Way, runs []NewRun) ([]Added, error) {
	args := make([]any, 0, 3+8*len(runs))
	args = append(args, s.db.Prefix, string(rune(way)), KeepSuperseded.Milliseconds())
	for _, r := range runs {
		args = append(args, r.UUID, r.Kind, r.Class, r.Args, r.Queue, r.Again, r.Tenant, Payload(r.Class, r.UUID, 1))
	}
	raw, err := s.db.Eval(ctx, addScript, s.db.Key(keyCurrent), args)
	if err != nil {
		return nil, err
	}
	list := rdb.Texts(raw)
	if len(list) != 2*len(runs) {
		return nil, fmt.Errorf("script longjob_add: unexpected reply %v", raw)
	}
	added := make([]Added, len(runs))
	for i := range added {
		added[i] = Added{Outcome: list[2*i][0], UUID: list[2*i+1]}
	}
	return added, nil
}

// Payload returns the payload of a slice: its only argument is the run, its id names the slice.
func Payload(class, uuid string, slice int64) []byte {
	name, err := json.Marshal(class)
	if err != nil { // cannot fail for a string
		panic(err)
	}
	return fmt.Appendf(nil, `{"class":%s,"args":["%s"],"id":"%s.%d"}`, name, uuid, uuid, slice)
}

const uuidBytes = 36

// NamesSlice reports whether an id may belong to a slice's payload, and returns run and slice number.
func NamesSlice(id string) (uuid string, slice int64) {
	if len(id) <= uuidBytes+1 || id[uuidBytes] != '.' || id[8] != '-' {
		return "", 0
	}
	return id[:uuidBytes], SliceOf(id[:uuidBytes], id)
}

// SliceOf returns the slice number in the id of a payload; 0 = none.
func SliceOf(uuid, id string) int64 {
	text, ok := strings.CutPrefix(id, uuid+".")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || n < 1 {
		return 0
	}
	return n
}

// replied is the error of a reply by a script. The same call would be answered the same way again.
type replied string

func (e replied) Error() string { return string(e) }

// Replied reports whether an error is a reply about a slice or a run, and not a fault.
func Replied(err error) bool {
	_, ok := errors.AsType[replied](err)
	return ok
}

// Why a slice or a run was left unchanged.
const (
	ErrGone       = replied("no such run of a long job")
	ErrOther      = replied("the run is one of another class of long jobs")
	ErrOver       = replied("the run of the long job is over")
	ErrStale      = replied("another slice of the long job is next")
	ErrWait       = replied("the tenant of the long job has enough slices; this one waits for its turn")
	ErrBehind     = replied("the code of the run before this one is running still")
	ErrBusy       = replied("another process runs this slice of the long job")
	ErrSuperseded = replied("this slice of the long job is not the one that counts any more")
	ErrEnding     = replied("a slice of the long job is running still")
	ErrUnread     = replied("another version of resqued has written this run of a long job, in a format that this one does not read")
	ErrNewer      = replied("a newer run of the same kind waits or runs")
	ErrPaused     = replied("the run of the long job is paused")
	ErrNotPaused  = replied("the run of the long job is not paused")
)

// ErrLease ends when the process renews its lease.
var ErrLease = errors.New("the lease of the process is past")

var replies = map[string]error{
	"GONE": ErrGone, "NONE": ErrGone, "OTHER": ErrOther, "OVER": ErrOver, "STALE": ErrStale, "MOVED": ErrStale, "WAIT": ErrWait,
	"BEHIND": ErrBehind, "BUSY": ErrBusy, "SUPERSEDED": ErrSuperseded, "LOST": ErrSuperseded, "ENDING": ErrEnding, "UNREAD": ErrUnread,
	"NEWER": ErrNewer, "PAUSED": ErrPaused, "RUNS": ErrNotPaused, "LEASE": ErrLease,
}

func errorOf(list []string) error {
	switch {
	case len(list) == 2 && list[0] == "OVER":
		return fmt.Errorf("%w: %s", ErrOver, list[1])
	case len(list) > 0 && replies[list[0]] != nil:
		return replies[list[0]]
	}
	return fmt.Errorf("unexpected reply %q", list)
}

// change runs a script that replies with one word: done, one of replies, or the status of a run that is over.
func (s *Store) change(ctx context.Context, script *rdb.Script, uuid, done string, args ...any) error {
	raw, err := s.db.Eval(ctx, script, s.db.Key(keyRun)+uuid, append([]any{s.db.Prefix, uuid}, args...))
	if err != nil {
		return err
	}
	text, _ := raw.(string)
	switch {
	case text == done:
		return nil
	case replies[text] != nil:
		return replies[text]
	case text == strings.ToUpper(text): // a status is in small letters
		return fmt.Errorf("script %s: unexpected reply %v", script.Name, raw)
	}
	return fmt.Errorf("%w: %s", ErrOver, text)
}

// Slice names one slice of a run, and the job that runs it.
type Slice struct {
	UUID string
	// Number is the slice's number; 0 = the next one, for Begin only.
	Number int64
	Run    rdb.RunName
	Fence  int64
	// Share is how many slices per tenant the class allows at a time, 0 = as stored, Adaptive = as there is
	// room; for Begin only.
	Share int
	// Queues are the queues of the thread, nil = any; for Begin only.
	Queues []string
	// Class is the job's class, empty = any; for Begin and Refuse only.
	Class string
}

// Record is a run in Redis; see docs/redis-keys.md for Fields.
type Record struct {
	UUID   string
	Fields map[string]string
	// State is the run's state, by key; only Begin and Run set it.
	State map[string]string
	// Place is the run's place in its tenant's line, 1 = first, 0 = not in line; only Run sets it.
	Place int64
}

// Number returns a numeric field, or 0.
func (r *Record) Number(field string) int64 {
	n, _ := strconv.ParseInt(r.Fields[field], 10, 64)
	return n
}

// Adaptive is the Share of a class whose tenants get as many slices as there are threads that no other tenant
// needs.
const Adaptive = -1

// Begin begins a slice. It may be repeated for the same in-flight record.
func (s *Store) Begin(ctx context.Context, l Slice) (Record, error) {
	share, queues := "", ""
	switch {
	case l.Share > 0:
		share = strconv.Itoa(l.Share)
	case l.Share == Adaptive:
		share = "a"
	}
	if len(l.Queues) > 0 {
		queues = "," + strings.Join(l.Queues, ",") + ","
	}
	raw, err := s.db.Eval(ctx, beginScript, s.db.Key(keyRun)+l.UUID, []any{s.db.Prefix, l.UUID, l.Number, l.Run.Proc, l.Run.Token, share, l.Class, rdb.Known().Oldest, rdb.Known().Newest, queues})
	if err != nil {
		return Record{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 3 || list[0] != "RUN" {
		return Record{}, errorOf(rdb.Texts(raw))
	}
	return Record{UUID: l.UUID, Fields: textMap(list[1]), State: textMap(list[2])}, nil
}

func textMap(v any) map[string]string {
	list := rdb.Texts(v)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// Op is what Save does in addition to saving.
type Op byte

// The ops; see lua/save.lua.
const (
	GoesOn      Op = 'c'
	Yields      Op = 'y'
	Waits       Op = 'l'
	Interrupted Op = 'k'
	Completed   Op = 'd'
	Failed      Op = 'f'
)

// Save is the input of Store.Save.
type Save struct {
	Slice
	Op Op
	// Class and Queue are for the payload of the next slice.
	Class, Queue string
	// Wait is how long the next slice waits (Waits), Keep how long an ended run is kept.
	Wait, Keep time.Duration
	// Further is the uuid of the following run, if one more was requested.
	Further string
	// Progress: a unit was completed since the last save.
	Progress bool
	Fields   map[string]string
	Set      map[string]string
	Clear    []string
}

// Saved reports whether a Further run was enqueued, and whether the run is paused, so that no further unit may
// begin.
type Saved struct{ Further, Paused bool }

// Save saves a slice. It may be repeated after an error with unknown outcome.
func (s *Store) Save(ctx context.Context, l Save) (Saved, error) {
	payload, wait := Payload(l.Class, l.UUID, l.Number+1), l.Wait
	if l.Op == Completed || l.Op == Failed {
		payload, wait = Payload(l.Class, l.Further, 1), l.Keep
	}
	args := make([]any, 0, 16+2*len(l.Fields)+2*len(l.Set)+len(l.Clear))
	args = append(args, s.db.Prefix, l.UUID, l.Number, l.Run.Proc, l.Run.Token, l.Fence, string(rune(l.Op)), payload, l.Queue,
		wait.Milliseconds(), l.Further, KeepSuperseded.Milliseconds(), rdb.Flag(l.Progress))
	args = appendMap(args, l.Fields)
	args = appendMap(args, l.Set)
	for _, key := range l.Clear {
		args = append(args, key)
	}
	raw, err := s.db.Eval(ctx, saveScript, s.db.Key(keyRun)+l.UUID, args)
	if err != nil {
		return Saved{}, err
	}
	list := rdb.Texts(raw)
	switch {
	case len(list) == 3 && list[0] == "OK":
		return Saved{Further: list[1] != "", Paused: list[2] == "1"}, nil
	case len(list) == 1 && list[0] == "AGAIN":
		return Saved{}, nil
	}
	return Saved{}, errorOf(list)
}

func appendMap(args []any, m map[string]string) []any {
	args = append(args, len(m))
	for k, v := range m {
		args = append(args, k, v)
	}
	return args
}

// Cancel ends a run for good. The error is ErrOver if it had already ended, and ErrEnding if it has ended now
// but a slice still runs.
func (s *Store) Cancel(ctx context.Context, uuid string, keep time.Duration) error {
	return s.change(ctx, cancelScript, uuid, "CANCELLED", keep.Milliseconds())
}

// Pause stops a run before its next unit, until Resume. It may be repeated. The error is ErrOver if the run is
// over, and ErrEnding if it is paused now but a slice still runs, until its next unit.
func (s *Store) Pause(ctx context.Context, uuid string) error {
	return s.change(ctx, pauseScript, uuid, "PAUSED", rdb.Known().Oldest, rdb.Known().Newest)
}

// Resume continues a paused run. r is the run as last read.
func (s *Store) Resume(ctx context.Context, r Record) error {
	slice := r.Number("slice")
	return s.change(ctx, resumeScript, r.UUID, "RESUMED", slice, Payload(r.Fields["class"], r.UUID, slice+1), rdb.Known().Oldest, rdb.Known().Newest)
}

// Refuse notes that a program took a slice whose class it does not know; the payload must go back. The error is
// ErrGone if there is no such run of l.Class, and ErrOver, ErrStale or ErrBusy if the payload is void.
func (s *Store) Refuse(ctx context.Context, l Slice) error {
	return s.change(ctx, refuseScript, l.UUID, "OK", l.Number, l.Class, l.Run.Proc, l.Run.Token, rdb.Known().Oldest, rdb.Known().Newest)
}

// Leave notes that a slice's code has ended after its run, so that the tenant may have another slice.
func (s *Store) Leave(ctx context.Context, l Slice) error {
	_, err := s.db.Eval(ctx, leaveScript, s.db.Key(keyRun)+l.UUID, []any{s.db.Prefix, l.UUID, l.Run.Proc, l.Run.Token})
	return err
}

// Turns gives turns to at most n tenants that were not checked for the time silent, in case an event went
// unnoticed.
func (s *Store) Turns(ctx context.Context, silent time.Duration, n int) error {
	_, err := s.db.Eval(ctx, turnScript, s.db.Key(keyTenants), []any{s.db.Prefix, silent.Milliseconds(), n})
	return err
}

// Again resumes a failed or cancelled run, or a lost one: active, but without a slice that runs or waits. r is
// the run as last read.
func (s *Store) Again(ctx context.Context, r Record, lost bool) error {
	slice := r.Number("slice")
	return s.change(ctx, againScript, r.UUID, "QUEUED", slice, Payload(r.Fields["class"], r.UUID, slice+1), rdb.Flag(lost), rdb.Known().Oldest, rdb.Known().Newest)
}

// Forget removes at most n runs that ended long enough ago, and locks without a holder.
func (s *Store) Forget(ctx context.Context, n int) (removed int, err error) {
	raw, err := s.db.Eval(ctx, forgetScript, s.db.Key(keyEnded), []any{s.db.Prefix, n})
	return int(rdb.Number(raw)), err
}

// Lock takes a named lock for a job in flight; false = another job holds it.
func (s *Store) Lock(ctx context.Context, name string, run rdb.RunName) (bool, error) {
	raw, err := s.db.Eval(ctx, lockScript, s.db.Key(keyLocks), []any{s.db.Prefix, name, run.Proc, run.Token, "1"})
	switch {
	case err != nil:
		return false, err
	case raw == "LOST":
		return false, ErrSuperseded
	}
	return raw == "OK", nil
}

// Unlock releases a named lock if the job still holds it.
func (s *Store) Unlock(ctx context.Context, name string, run rdb.RunName) error {
	_, err := s.db.Eval(ctx, lockScript, s.db.Key(keyLocks), []any{s.db.Prefix, name, run.Proc, run.Token, "0"})
	return err
}
