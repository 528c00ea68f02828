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
	longAddScript    = rdb.NewScript(Lua, "longadd", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longadd")
	longBeginScript  = rdb.NewScript(Lua, "longbegin", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longbegin")
	longSaveScript   = rdb.NewScript(Lua, "longsave", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longsave")
	longCancelScript = rdb.NewScript(Lua, "longcancel", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longcancel")
	longAgainScript  = rdb.NewScript(Lua, "longagain", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longagain")
	longForgetScript = rdb.NewScript(Lua, "longforget", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longforget")
	longLeaveScript  = rdb.NewScript(Lua, "longleave", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longleave")
	longTurnScript   = rdb.NewScript(Lua, "longturn", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longturn")
	longLockScript   = rdb.NewScript(Lua, "longlock", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "longlock")
)

// LongWay is how a run of a long job is enqueued.
type LongWay byte

// The ways; lua/longadd.lua says what they do.
const (
	LongAlways   LongWay = 'a'
	LongUnique   LongWay = 'u'
	LongDebounce LongWay = 'd'
)

// LongSuperseded is how long a run is kept that is not the newest of its kind.
const LongSuperseded = 15 * time.Minute

// NewLongRun is a run to be enqueued.
type NewLongRun struct {
	UUID string
	// Kind is what runs have in common of which one counts at a time.
	Kind, Class string
	// Args is a JSON array.
	Args []byte
	// Queue is where the first slice goes, Again where the others go; empty = where
	// the class says.
	Queue, Again string
	// Tenant is whose run it is; empty = no tenant.
	Tenant string
}

// LongAdded is what became of a NewLongRun: Outcome is 'n' (new), 'e' (one exists) or
// 'r' (one exists, and is followed by one more). UUID names the run that counts.
type LongAdded struct {
	Outcome byte
	UUID    string
}

// AddLongRuns enqueues runs, all in one step. After an error the outcome is unknown unless
// rdb.Unexecuted.
func (s *Store) AddLongRuns(ctx context.Context, way LongWay, runs []NewLongRun) ([]LongAdded, error) {
	args := make([]any, 0, 3+8*len(runs))
	args = append(args, s.db.Prefix, string(rune(way)), LongSuperseded.Milliseconds())
	for _, r := range runs {
		args = append(args, r.UUID, r.Kind, r.Class, r.Args, r.Queue, r.Again, r.Tenant, LongPayload(r.Class, r.UUID, 1))
	}
	raw, err := s.db.Eval(ctx, longAddScript, s.db.Key(keyLongCurrent), args)
	if err != nil {
		return nil, err
	}
	list := rdb.Texts(raw)
	if len(list) != 2*len(runs) {
		return nil, fmt.Errorf("script longadd: unexpected reply %v", raw)
	}
	added := make([]LongAdded, len(runs))
	for i := range added {
		added[i] = LongAdded{Outcome: list[2*i][0], UUID: list[2*i+1]}
	}
	return added, nil
}

// LongPayload is the payload of one slice: its only argument is the run, its id names the
// slice.
func LongPayload(class, uuid string, slice int64) []byte {
	name, err := json.Marshal(class)
	if err != nil { // texts cannot fail
		panic(err)
	}
	return fmt.Appendf(nil, `{"class":%s,"args":["%s"],"id":"%s.%d"}`, name, uuid, uuid, slice)
}

// LongSliceOf returns the number of a slice that stands in the id of its payload, 0 = none.
func LongSliceOf(uuid, id string) int64 {
	text, ok := strings.CutPrefix(id, uuid+".")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || n < 1 {
		return 0
	}
	return n
}

// Why nothing is done for a slice.
var (
	ErrLongGone       = errors.New("no such run of a long job")
	ErrLongOther      = errors.New("the run is one of another class of long jobs")
	ErrLongOver       = errors.New("the run of the long job is over")
	ErrLongStale      = errors.New("another slice of the long job is next")
	ErrLongWait       = errors.New("the tenant of the long job has enough slices; this one waits for its turn")
	ErrLongBehind     = errors.New("the code of the run before this one is running still")
	ErrLongBusy       = errors.New("somebody else runs this slice of the long job")
	ErrLongSuperseded = errors.New("this slice of the long job is not the one that counts any more")
	ErrLongLease      = errors.New("the lease of the process is past")
	ErrLongEnding     = errors.New("a slice of the long job is running still")
	ErrLongNewer      = errors.New("a newer run of the same kind waits or runs")
)

func longErr(list []string) error {
	if len(list) == 0 {
		return errors.New("unexpected reply")
	}
	switch list[0] {
	case "GONE":
		return ErrLongGone
	case "OVER":
		if len(list) > 1 {
			return fmt.Errorf("%w: %s", ErrLongOver, list[1])
		}
		return ErrLongOver
	case "STALE":
		return ErrLongStale
	case "WAIT":
		return ErrLongWait
	case "BUSY":
		return ErrLongBusy
	case "OTHER":
		return ErrLongOther
	case "BEHIND":
		return ErrLongBehind
	case "SUPERSEDED", "LOST":
		return ErrLongSuperseded
	case "LEASE":
		return ErrLongLease
	}
	return fmt.Errorf("unexpected reply %q", list)
}

// LongSlice names one slice of a run, and who runs it.
type LongSlice struct {
	UUID string
	// Slice is its number; 0 = whichever is next, for LongBegin only.
	Slice int64
	Run   rdb.RunName
	Fence int64
	// Share is how many slices of one tenant the class allows at a time, 0 = as known; for
	// LongBegin only.
	Share int
	// Class is that of the job, empty = whatever the run's is; for LongBegin only.
	Class string
}

// LongRecord is a run as Redis has it: Fields as in docs/redis-keys.md.
type LongRecord struct {
	UUID   string
	Fields map[string]string
	// State is what the run remembers, by key; only LongBegin and LongRun fill it in.
	State map[string]string
	// Place is where the run stands in the line of its tenant, 1 = first, 0 = it does not;
	// only LongRun fills it in.
	Place int64
}

// Number returns a field that is a number, 0 if there is none.
func (r *LongRecord) Number(field string) int64 {
	n, _ := strconv.ParseInt(r.Fields[field], 10, 64)
	return n
}

// LongBegin begins a slice. It may be repeated for the same in-flight record.
func (s *Store) LongBegin(ctx context.Context, l LongSlice) (LongRecord, error) {
	share := ""
	if l.Share > 0 {
		share = strconv.Itoa(l.Share)
	}
	raw, err := s.db.Eval(ctx, longBeginScript, s.db.Key(keyLongRun)+l.UUID, []any{s.db.Prefix, l.UUID, l.Slice, l.Run.Proc, l.Run.Token, share, l.Class})
	if err != nil {
		return LongRecord{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 3 || list[0] != "RUN" {
		return LongRecord{}, longErr(rdb.Texts(raw))
	}
	return LongRecord{UUID: l.UUID, Fields: textMap(list[1]), State: textMap(list[2])}, nil
}

func textMap(v any) map[string]string {
	list := rdb.Texts(v)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// LongOp is what LongSave does besides saving.
type LongOp byte

// The ops; lua/longsave.lua says what they do.
const (
	LongGoesOn      LongOp = 'c'
	LongYields      LongOp = 'y'
	LongWaits       LongOp = 'l'
	LongInterrupted LongOp = 'k'
	LongCompleted   LongOp = 'd'
	LongFailed      LongOp = 'f'
)

// LongSave is what a slice has come to.
type LongSave struct {
	LongSlice
	Op LongOp
	// Class and Queue are for the payload of the next slice.
	Class, Queue string
	// Wait is how long the next slice waits (LongWaits), Keep how long a run that has
	// ended is kept.
	Wait, Keep time.Duration
	// Further is the uuid of the run that follows if one more was asked for.
	Further string
	// Progress: something was completed since the last save.
	Progress bool
	Fields   map[string]string
	Set      map[string]string
	Clear    []string
}

// LongSave saves a slice, and answers whether a Further run was enqueued. It may be
// repeated after an error with unknown outcome.
func (s *Store) LongSave(ctx context.Context, l LongSave) (further bool, err error) {
	payload, wait := LongPayload(l.Class, l.UUID, l.Slice+1), l.Wait
	if l.Op == LongCompleted || l.Op == LongFailed {
		payload, wait = LongPayload(l.Class, l.Further, 1), l.Keep
	}
	args := make([]any, 0, 16+2*len(l.Fields)+2*len(l.Set)+len(l.Clear))
	args = append(args, s.db.Prefix, l.UUID, l.Slice, l.Run.Proc, l.Run.Token, l.Fence, string(rune(l.Op)), payload, l.Queue,
		wait.Milliseconds(), l.Further, LongSuperseded.Milliseconds(), rdb.Flag(l.Progress))
	args = appendMap(args, l.Fields)
	args = appendMap(args, l.Set)
	for _, key := range l.Clear {
		args = append(args, key)
	}
	raw, err := s.db.Eval(ctx, longSaveScript, s.db.Key(keyLongRun)+l.UUID, args)
	if err != nil {
		return false, err
	}
	list := rdb.Texts(raw)
	switch {
	case len(list) == 2 && list[0] == "OK":
		return list[1] != "", nil
	case len(list) == 1 && list[0] == "AGAIN":
		return false, nil
	}
	return false, longErr(list)
}

func appendMap(args []any, m map[string]string) []any {
	args = append(args, len(m))
	for k, v := range m {
		args = append(args, k, v)
	}
	return args
}

// LongCancel ends a run for good. The error is ErrLongOver if it had ended before, and
// ErrLongEnding if that is so now, but a slice of it is running still.
func (s *Store) LongCancel(ctx context.Context, uuid string, keep time.Duration) error {
	raw, err := s.db.Eval(ctx, longCancelScript, s.db.Key(keyLongRun)+uuid, []any{s.db.Prefix, uuid, keep.Milliseconds()})
	if err != nil {
		return err
	}
	switch text, _ := raw.(string); text {
	case "CANCELLED":
		return nil
	case "ENDING":
		return ErrLongEnding
	case "GONE":
		return ErrLongGone
	default:
		return fmt.Errorf("%w: %s", ErrLongOver, text)
	}
}

// LongLeave notes that the code of a slice has ended after its run was over, so that the
// tenant may have another slice.
func (s *Store) LongLeave(ctx context.Context, l LongSlice) error {
	_, err := s.db.Eval(ctx, longLeaveScript, s.db.Key(keyLongRun)+l.UUID, []any{s.db.Prefix, l.UUID, l.Run.Proc, l.Run.Token})
	return err
}

// LongTurns gives the runs of at most n tenants their turn that were not looked at for the
// time silent, in case an event went unnoticed.
func (s *Store) LongTurns(ctx context.Context, silent time.Duration, n int) error {
	_, err := s.db.Eval(ctx, longTurnScript, s.db.Key(keyLongTenants), []any{s.db.Prefix, silent.Milliseconds(), n})
	return err
}

// LongAgain resumes a run that has failed or was cancelled, or one that is lost: it is active,
// but no slice of it runs or waits. r is the run as it was found.
func (s *Store) LongAgain(ctx context.Context, r LongRecord, lost bool) error {
	slice := r.Number("slice")
	raw, err := s.db.Eval(ctx, longAgainScript, s.db.Key(keyLongRun)+r.UUID,
		[]any{s.db.Prefix, r.UUID, slice, LongPayload(r.Fields["class"], r.UUID, slice+1), rdb.Flag(lost)})
	if err != nil {
		return err
	}
	switch text, _ := raw.(string); text {
	case "QUEUED":
		return nil
	case "GONE":
		return ErrLongGone
	case "MOVED":
		return ErrLongStale
	case "ENDING":
		return ErrLongEnding
	case "NEWER":
		return ErrLongNewer
	default:
		return fmt.Errorf("%w: %s", ErrLongOver, text)
	}
}

// LongForget removes at most n runs that have ended long enough ago, and locks whose
// holders are gone.
func (s *Store) LongForget(ctx context.Context, n int) (removed int, err error) {
	raw, err := s.db.Eval(ctx, longForgetScript, s.db.Key(keyLongEnded), []any{s.db.Prefix, n})
	return int(rdb.Number(raw)), err
}

// LongLock takes a named lock for a job in flight; false = another job holds it.
func (s *Store) LongLock(ctx context.Context, name string, run rdb.RunName) (bool, error) {
	raw, err := s.db.Eval(ctx, longLockScript, s.db.Key(keyLongLocks), []any{s.db.Prefix, name, run.Proc, run.Token, "1"})
	switch {
	case err != nil:
		return false, err
	case raw == "LOST":
		return false, ErrLongSuperseded
	}
	return raw == "OK", nil
}

// LongUnlock releases it, if it is still its own.
func (s *Store) LongUnlock(ctx context.Context, name string, run rdb.RunName) error {
	_, err := s.db.Eval(ctx, longLockScript, s.db.Key(keyLongLocks), []any{s.db.Prefix, name, run.Proc, run.Token, "0"})
	return err
}
