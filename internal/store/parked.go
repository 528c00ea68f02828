package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

var (
	unparkScript     = rdb.NewScript(Lua, "unpark", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/unique", "lib/parked", "unpark")
	dropKeptScript   = rdb.NewScript(Lua, "drop_kept", "lib/base", "lib/records", "lib/rights", "lib/parked", "drop_kept")
	dropParkedScript = rdb.NewScript(Lua, "drop_parked", "lib/base", "lib/records", "lib/rights", "lib/parked", "lib/deaths", "drop_parked")
)

// FiledFailure is a record for the failed list. A large payload is not sent back to the
// server, which has it: the script puts it into the record, or keeps it elsewhere.
type FiledFailure struct {
	// Text is the record, complete JSON; if Gap is not 0, but for the payload, which
	// belongs behind so many bytes.
	Text []byte
	Gap  int
	// Reference is the record that refers to the payload where that is kept under an
	// id instead, see ParkedJob: where the record is too large for the server, or Text is nil.
	Reference []byte
	kept      bool
}

// File returns a failure as scripts take it. The id, "<proc>#<token>" of its job, is that under which a large payload
// is kept.
func File(f wire.Failure, id string) FiledFailure {
	text, gap, reference := f.Parts(id)
	return FiledFailure{Text: text, Gap: gap, Reference: reference}
}

// Record is a failure record as it is.
func Record(text []byte) FiledFailure { return FiledFailure{Text: text} }

func (f *FiledFailure) flags() (gap, large bool) { return !f.kept && f.Gap > 0, f.kept }

func (f *FiledFailure) text() []byte {
	switch {
	case f.kept:
		return f.Reference
	case f.Gap > 0:
		return append(append(strconv.AppendInt(nil, int64(f.Gap), 10), '\n'), f.Text...)
	}
	return f.Text
}

func (f *FiledFailure) keep() { f.kept = true }

const (
	// leastBulk is what every server takes as one argument, whatever its configuration
	// says; usualBulk is what it takes without one.
	leastBulk, usualBulk = 1 << 20, 512 << 20
	// bulkMargin is by how much a record may grow where it stands, when it is retried.
	bulkMargin = 64 << 10
	// bulkKnown is how long the limit of a server is believed.
	bulkKnown = time.Minute
)

// bulk is the largest argument that a server takes (proto-max-bulk-len).
type bulk struct {
	most int64
	at   time.Time
}

// fit decides whether a payload goes into its record. A record that a client could not
// send could never be retried or removed, for which one names it.
func (s *Store) fit(ctx context.Context, f *FiledFailure, payload []byte) {
	if f.Reference == nil || f.kept {
		return
	}
	size := int64(len(f.Text)+len(payload)) + bulkMargin
	f.kept = f.Text == nil || size > leastBulk && size > s.maxBulk(ctx)
}

// maxBulk asks for the largest argument that the server takes. One that does not say is
// taken for one with the usual limit.
func (s *Store) maxBulk(ctx context.Context) int64 {
	if b := s.bulk.Load(); b != nil && time.Since(b.at) < bulkKnown {
		return b.most
	}
	b := &bulk{most: usualBulk, at: time.Now()}
	if values, err := s.db.Read.ConfigGet(ctx, "proto-max-bulk-len").Result(); err == nil {
		if n, err := strconv.ParseInt(values["proto-max-bulk-len"], 10, 64); err == nil && n > 0 {
			b.most = n
		}
	}
	s.bulk.Store(b)
	return b.most
}

// ParkedKind says why something is parked.
type ParkedKind byte

// The kinds of what is parked.
const (
	// ParkedPayload: a failure record refers to it, which it would have made too large.
	ParkedPayload ParkedKind = 'l'
	// ParkedFailure: it has failed; ParkedReturn: it goes back to its queue. Both wait
	// until the key is repaired that is in the way.
	ParkedFailure ParkedKind = 'f'
	ParkedReturn  ParkedKind = 'r'
)

// ParkedJob is a job whose end could not be written where it belongs, or the payload of
// one that has failed.
type ParkedJob struct {
	ID string
	// Key is where the payload is, with the namespace.
	Key    string
	Kind   ParkedKind
	Queue  string
	Reason string
	At     time.Time
	// Size is that of the payload in bytes; -1 if it is gone.
	Size int64
}

// Parked returns what is parked, the oldest first, limit at most, and how much there is.
func (s *Store) Parked(ctx context.Context, limit int) (jobs []ParkedJob, total int64, err error) {
	total, err = s.ParkedCount(ctx)
	if err != nil || total == 0 || limit <= 0 {
		return nil, total, err
	}
	for cursor := uint64(0); ; {
		var fields []string
		fields, cursor, err = s.db.Read.HScan(ctx, s.db.Key(keyParked), cursor, "*", 100).Result()
		if err != nil {
			return nil, 0, fmt.Errorf("list what is parked: %w", err)
		}
		for i := 0; i+1 < len(fields); i += 2 {
			jobs = append(jobs, s.parsedParked(fields[i], fields[i+1]))
		}
		if cursor == 0 || len(jobs) >= limit {
			break
		}
	}
	sort.SliceStable(jobs, func(i, j int) bool { return jobs[i].At.Before(jobs[j].At) })
	jobs = jobs[:min(len(jobs), limit)]
	pipe := s.db.Read.Pipeline()
	sizes, there := make([]*redis.IntCmd, len(jobs)), make([]*redis.IntCmd, len(jobs))
	for i := range jobs {
		sizes[i], there[i] = pipe.StrLen(ctx, jobs[i].Key), pipe.Exists(ctx, jobs[i].Key)
	}
	if _, err := pipe.Exec(ctx); err != nil && rdb.Unreachable(err) {
		return nil, 0, fmt.Errorf("sizes of what is parked: %w", err)
	}
	for i := range jobs {
		if jobs[i].Size = sizes[i].Val(); there[i].Val() == 0 {
			jobs[i].Size = -1
		}
	}
	return jobs, total, nil
}

// ParkedCount is how much is parked.
func (s *Store) ParkedCount(ctx context.Context) (int64, error) {
	n, err := s.db.Read.HLen(ctx, s.db.Key(keyParked)).Result()
	if err != nil {
		return 0, fmt.Errorf("count what is parked (%s): %w", s.db.Key(keyParked), err)
	}
	return n, nil
}

// parsedParked reads what rdb/lua/lib/parked.lua wrote.
func (s *Store) parsedParked(id, meta string) ParkedJob {
	job := ParkedJob{ID: id, Key: s.db.Key(keyParkedPayload) + id, Reason: "not an entry of resqued"}
	head, body, _ := strings.Cut(meta, "\n")
	var version, start string
	var kind string
	var at, gap, queue, reason, text int
	n, err := fmt.Sscanf(head, "%s %s %d %s %d %d %d %d", &version, &kind, &at, &start, &gap, &queue, &reason, &text)
	if err != nil || n != 8 || version != "1" || len(kind) != 1 || queue < 0 || reason < 0 || queue+reason > len(body) {
		return job
	}
	switch job.Kind = ParkedReturn; kind {
	case "l":
		job.Kind = ParkedPayload
	case "f", "F":
		job.Kind = ParkedFailure
	}
	job.At, job.Queue, job.Reason = time.UnixMilli(int64(at)), body[:queue], body[queue:queue+reason]
	return job
}

// ParkedBytes returns the payload of what is parked, as it was pushed; nil if there is
// none.
func (s *Store) ParkedBytes(ctx context.Context, id string) ([]byte, error) {
	payload, err := s.db.Read.Get(ctx, s.db.Key(keyParkedPayload)+id).Bytes()
	if rdb.IsNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is parked: %w", err)
	}
	return payload, nil
}

// DropParked forgets what is parked, payload and all. It returns false if there is nothing.
func (s *Store) DropParked(ctx context.Context, id string) (bool, error) {
	raw, err := s.db.Eval(ctx, dropParkedScript, s.db.Key(keyParked), []any{s.db.Prefix, id})
	if err != nil {
		return false, fmt.Errorf("remove what is parked: %w", err)
	}
	return rdb.Number(raw) > 0, nil
}

// DropKept forgets payloads that are kept for failure records, by their ids, and returns how
// many there were. What is parked under an id for another reason stays.
func (s *Store) DropKept(ctx context.Context, ids []string) (dropped int, err error) {
	for some := range slices.Chunk(ids, unparkBatch) {
		args := []any{s.db.Prefix}
		for _, id := range some {
			args = append(args, id)
		}
		raw, err := s.db.Eval(ctx, dropKeptScript, s.db.Key(keyParked), args)
		if err != nil {
			return dropped, fmt.Errorf("remove kept payloads: %w", err)
		}
		dropped += int(rdb.Number(raw))
	}
	return dropped, nil
}

// unparkBatch bounds what one call moves.
const unparkBatch = 100

// Unpark moves what waits for its place there, where that has been repaired; what has
// been tried in vain has its turn again ten seconds later.
func (s *Store) Unpark(ctx context.Context) (moved int, err error) {
	for {
		n, more, _, err := s.unpark(ctx)
		moved += n
		if err != nil || !more || n == 0 {
			return moved, err
		}
	}
}

// Replace puts what is parked where it belongs: of a failed job whose record refers to
// it that is its queue. The error says what is in the way.
func (s *Store) Replace(ctx context.Context, id string) error {
	_, _, reason, err := s.unpark(ctx, id)
	if err == nil && reason != "" {
		err = errors.New(reason)
	}
	return err
}

func (s *Store) unpark(ctx context.Context, ids ...string) (moved int, more bool, reason string, err error) {
	args := []any{s.db.Prefix, unparkBatch}
	for _, id := range ids {
		args = append(args, id)
	}
	raw, err := s.db.Eval(ctx, unparkScript, s.db.Key(keyParking), args)
	if err != nil {
		return 0, false, "", err
	}
	list, _ := raw.([]any)
	if len(list) != 3 {
		return 0, false, "", fmt.Errorf("script unpark: unexpected reply %v", raw)
	}
	reason, _ = list[2].(string)
	return int(rdb.Number(list[0])), rdb.Number(list[1]) == 1, reason, nil
}
