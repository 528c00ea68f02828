package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

var (
	unparkScript     = rdb.NewScript(Lua, "unpark", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/unique", "lib/parked", "unpark")
	dropParkedScript = rdb.NewScript(Lua, "drop_parked", "lib/base", "lib/records", "lib/rights", "lib/parked", "lib/deaths", "drop_parked")
)

// FiledFailure is a record for the failed list. A large payload is not sent to the server, which has it: the script
// inserts it into the record, or keeps it elsewhere.
type FiledFailure struct {
	// Text is the record as JSON; if Gap is not 0, without the payload, which belongs after Gap bytes.
	Text []byte
	Gap  int
	// Reference is the record that refers to a payload kept under an id, see ParkedJob: for a record
	// too large for the server, or if Text is nil.
	Reference []byte
	kept      bool
}

// File returns a failure for scripts. id, "<proc>#<token>" of its job, is the id of a large payload that is kept.
func File(f wire.Failure, id string) FiledFailure {
	text, gap, reference := f.Parts(id)
	return FiledFailure{Text: text, Gap: gap, Reference: reference}
}

// Record returns a failure record unchanged.
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
	// leastBulk is the argument size that every server accepts; usualBulk is the default limit.
	leastBulk, usualBulk = 1 << 20, 512 << 20
	// bulkMargin is how much a record may grow in place, when it is retried.
	bulkMargin = 64 << 10
	// bulkKnown is how long a server's limit is cached.
	bulkKnown = time.Minute
)

type bulk struct {
	most int64
	at   time.Time
}

// fit decides whether a payload goes into its record. A record too large for a client to send could never be
// retried or removed, because both send it.
func (s *Store) fit(ctx context.Context, f *FiledFailure, payload []byte) {
	if f.Reference == nil || f.kept {
		return
	}
	size := int64(len(f.Text)+len(payload)) + bulkMargin
	f.kept = f.Text == nil || size > leastBulk && size > s.maxBulk(ctx)
}

// maxBulk returns the largest argument that the server accepts; without an answer, the default.
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

// ParkedKind says why an entry is parked.
type ParkedKind byte

// The kinds of parked entries.
const (
	// ParkedPayload: a failure record refers to the payload, which is too large for it.
	ParkedPayload ParkedKind = 'l'
	// ParkedFailure: the job has failed. ParkedReturn: it returns to its queue. Both wait until the key
	// of the wrong type is repaired.
	ParkedFailure ParkedKind = 'f'
	ParkedReturn  ParkedKind = 'r'
)

// ParkedJob is a job whose end could not be written, or the payload of a failed one.
type ParkedJob struct {
	ID string
	// Key is the payload's key, with the namespace.
	Key    string
	Kind   ParkedKind
	Queue  string
	Reason string
	At     time.Time
	// Size is the payload's size in bytes; -1 if it is gone.
	Size int64
}

// Parked returns at most limit parked entries, the oldest first, and the total count.
func (s *Store) Parked(ctx context.Context, limit int) (jobs []ParkedJob, total int64, err error) {
	total, err = s.ParkedCount(ctx)
	if err != nil || total == 0 || limit <= 0 {
		return nil, total, err
	}
	entries := s.db.Read.HScan(ctx, s.db.Key(keyParked), 0, "", 100).Iterator()
	for len(jobs) < limit+100 && entries.Next(ctx) { // in no order
		id := entries.Val()
		entries.Next(ctx)
		jobs = append(jobs, s.parsedParked(id, entries.Val()))
	}
	if err := entries.Err(); err != nil {
		return nil, 0, fmt.Errorf("list what is parked: %w", err)
	}
	slices.SortStableFunc(jobs, func(a, b ParkedJob) int { return a.At.Compare(b.At) })
	jobs = jobs[:min(len(jobs), limit)]
	sizes, there := make([]*redis.IntCmd, len(jobs)), make([]*redis.IntCmd, len(jobs))
	err = s.readEach(ctx, len(jobs), func(pipe redis.Pipeliner, i int) {
		sizes[i], there[i] = pipe.StrLen(ctx, jobs[i].Key), pipe.Exists(ctx, jobs[i].Key)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("sizes of what is parked: %w", err)
	}
	for i := range jobs {
		if jobs[i].Size = sizes[i].Val(); there[i].Val() == 0 {
			jobs[i].Size = -1
		}
	}
	return jobs, total, nil
}

// ParkedCount returns the number of parked entries.
func (s *Store) ParkedCount(ctx context.Context) (int64, error) {
	n, err := s.db.Read.HLen(ctx, s.db.Key(keyParked)).Result()
	if err != nil {
		return 0, fmt.Errorf("count what is parked (%s): %w", s.db.Key(keyParked), err)
	}
	return n, nil
}

// parsedParked reads the output of rdb/lua/lib/parked.lua.
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

// ParkedBytes returns the payload of a parked entry, as pushed; nil if there is none.
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

// DropParked removes a parked entry with its payload. It returns false if there is none.
func (s *Store) DropParked(ctx context.Context, id string) (bool, error) {
	n, err := s.dropParked(ctx, false, id)
	return n > 0, err
}

// DropKept removes payloads kept for failure records, by their ids, and returns how many there were. Entries
// parked for another reason stay.
func (s *Store) DropKept(ctx context.Context, ids []string) (dropped int, err error) {
	for some := range slices.Chunk(ids, unparkBatch) {
		n, err := s.dropParked(ctx, true, some...)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

func (s *Store) dropParked(ctx context.Context, kept bool, ids ...string) (int, error) {
	raw, err := s.db.Eval(ctx, dropParkedScript, s.db.Key(keyParked), with([]any{s.db.Prefix, rdb.Flag(kept)}, ids...))
	if err != nil {
		return 0, fmt.Errorf("remove what is parked: %w", err)
	}
	return int(rdb.Number(raw)), nil
}

const unparkBatch = 100

// Unpark writes entries whose target was repaired. A failed attempt is repeated after ten seconds.
func (s *Store) Unpark(ctx context.Context) (moved int, err error) {
	for {
		n, more, _, err := s.unpark(ctx)
		moved += n
		if err != nil || !more || n == 0 {
			return moved, err
		}
	}
}

// Replace writes a parked entry to its target; for the payload of a failed job, that is its queue. The error
// says what prevents it.
func (s *Store) Replace(ctx context.Context, id string) error {
	_, _, reason, err := s.unpark(ctx, id)
	if err == nil && reason != "" {
		err = errors.New(reason)
	}
	return err
}

func (s *Store) unpark(ctx context.Context, ids ...string) (moved int, more bool, reason string, err error) {
	list, err := s.db.EvalList(ctx, unparkScript, s.db.Key(keyParking), with([]any{s.db.Prefix, unparkBatch}, ids...), 3)
	if err != nil {
		return 0, false, "", err
	}
	return int(list.Number(0)), list.Number(1) == 1, list.Text(2), nil
}
