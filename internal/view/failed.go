package view

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// failedPage is how many failures are read at a time: each may be as large as a job.
const failedPage = 200

// Failure is one record of a list of failures.
type Failure struct {
	// Store is the record's store, in a list of several stores.
	Store string `json:"store,omitempty"`
	// ID is the record's digest and, after "@", its index from the oldest.
	ID string `json:"id"`
	// List is failed, or a list of Resque's multi-queue failure backend.
	List  string          `json:"list"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers  []string   `json:"wrappers,omitempty"`
	Queue     string     `json:"queue"`
	Exception string     `json:"exception"`
	Error     string     `json:"error"`
	FailedAt  *time.Time `json:"failed_at"`
	// Attempts is how often the job ran, if its class has retries.
	Attempts  int      `json:"attempts,omitempty"`
	RetriedAt string   `json:"retried_at,omitempty"`
	Worker    string   `json:"worker,omitempty"`
	Backtrace []string `json:"backtrace,omitempty"`
	// KeptAs is the id of a parked payload that is too large for its record, KeptSize its size in
	// bytes. Payload and Args are then a reference.
	KeptAs   string `json:"kept_as,omitempty"`
	KeptSize int64  `json:"kept_size,omitempty"`
	// Payload is what was pushed; empty in lists.
	Payload string `json:"payload,omitempty"`
}

// FailureGroup is failures of a class, exception and queue whose messages differ in numbers and
// ids.
type FailureGroup struct {
	// ID selects the group's failures; empty for records that are not failures.
	ID        string `json:"id"`
	Store     string `json:"store,omitempty"` // as in Failure
	Count     int    `json:"count"`
	Class     string `json:"class"`
	Exception string `json:"exception"`
	// Pattern is their common message; see Mask.
	Pattern string `json:"pattern"`
	// Error is the message of the newest failure, Example its id.
	Error   string     `json:"error"`
	Example string     `json:"example"`
	Queue   string     `json:"queue"`
	First   *time.Time `json:"first"`
	Last    *time.Time `json:"last"`
}

// FailureGroups are the groups of the failures that were read, the largest first.
type FailureGroups struct {
	Groups []*FailureGroup
	// Others counts failures that are in no group because there are too many groups.
	Others int
	// Looked is how many records were read; Partial reports whether there are older ones.
	Looked  int64
	Partial bool
}

// FailureQuery selects failures.
type FailureQuery struct {
	// Match selects records as they are in Redis; nil = all.
	Match func(record []byte) bool
	// Limit is how many of the newest records are read, Time for how long; 0 = no time limit.
	Limit int64
	Time  time.Duration
}

// FindFailures returns the failures with the given ids. The error is a NotFoundError or an
// AmbiguousError if an id does not match exactly one.
func FindFailures(ctx context.Context, s *store.Store, ids []string) ([]Failure, error) {
	refs := make([]store.FailureRef, len(ids))
	for i, id := range ids {
		refs[i] = store.ParseFailureRef(id)
	}
	found, err := s.FindFailures(ctx, refs)
	if err != nil {
		return nil, err
	}
	var views []Failure
	for i, matches := range found {
		switch {
		case len(matches) == 0:
			return nil, &NotFoundError{Kind: "failure", Name: ids[i], Known: recentFailures(ctx, s)}
		case len(matches) > 1:
			several := &AmbiguousError{Kind: "failure", Name: ids[i]}
			for _, record := range matches {
				several.Matches = append(several.Matches, store.FailureID(record.Raw, record.Index))
			}
			return nil, several
		}
		views = append(views, newFailure(redact.From(ctx), matches[0]))
	}
	return views, nil
}

func recentFailures(ctx context.Context, s *store.Store) (ids []string) {
	views, _, _ := Failures(ctx, s, FailureQuery{Limit: failedPage}) // for a hint only
	for _, v := range views {
		ids = append(ids, v.Name())
	}
	return ids
}

// Failures returns the failures that q selects, the newest first, without payload and backtrace.
// partial reports whether there are older records.
func Failures(ctx context.Context, s *store.Store, q FailureQuery) (views []Failure, partial bool, err error) {
	lists, looked := map[string]bool{}, int64(0)
	looked, partial, err = EachFailure(ctx, s, q, func(v *Failure) {
		lists[v.List] = true
		views = append(views, *v)
	})
	if err != nil {
		return nil, false, err
	}
	if len(lists) < 2 {
		return views, partial, nil
	}
	slices.SortStableFunc(views, func(a, b Failure) int { return b.at().Compare(a.at()) })
	if partial = partial || looked > q.Limit; q.Match == nil && int64(len(views)) > q.Limit {
		views = views[:q.Limit]
	}
	return views, partial, nil
}

// EachFailure calls do for the failures that q selects, list by list, the newest of each first,
// without payload and backtrace. It holds one page of records at a time. looked counts the records
// read; partial reports whether there are older ones.
func EachFailure(ctx context.Context, s *store.Store, q FailureQuery, do func(v *Failure)) (looked int64, partial bool, err error) {
	lists, err := s.FailureLists(ctx)
	if err != nil {
		return 0, false, err
	}
	begun := time.Now()
	for _, list := range lists {
		for offset := int64(0); offset < q.Limit; {
			if q.Time > 0 && time.Since(begun) > q.Time {
				return looked + offset, true, nil
			}
			records, total, err := s.FailedList(ctx, list, offset, min(failedPage, q.Limit-offset))
			if err != nil {
				return 0, false, err
			}
			for _, record := range records {
				if q.Match != nil && !q.Match(record.Raw) {
					continue
				}
				v := newFailure(redact.From(ctx), record)
				v.Backtrace, v.Payload = nil, ""
				do(&v)
			}
			offset += int64(len(records))
			if more := offset < total; !more || len(records) == 0 {
				looked += offset
				break
			} else if offset >= q.Limit {
				looked += offset
				partial = true
			}
		}
	}
	return looked, partial, nil
}

// Name returns the short name of a failure for lists.
func (v *Failure) Name() string {
	digest, place, _ := strings.Cut(v.ID, "@")
	return digest[:ShortID] + "@" + place
}

// at returns when the job failed, or the zero time.
func (v *Failure) at() time.Time {
	if v.FailedAt == nil {
		return time.Time{}
	}
	return *v.FailedAt
}

func newFailure(rules *redact.Rules, record store.FailureRecord) Failure {
	v := Failure{ID: store.FailureID(record.Raw, record.Index), List: record.List, Args: json.RawMessage("null")}
	f, err := wire.ParseFailure(record.Raw)
	if err != nil {
		v.Exception, v.Error, v.Payload = "(no failure record)", rules.Text(err.Error()), rules.Text(string(record.Raw))
		return v
	}
	payload := f.Pushed()
	v.Payload, v.Queue, v.Exception, v.Error = rules.Payload(payload), f.Queue, f.Exception, f.Error
	v.Worker, v.Backtrace, v.RetriedAt, v.Attempts = f.Worker, f.Backtrace, f.RetriedAt, max(f.Attempts, 0)
	if !f.FailedAt.IsZero() {
		v.FailedAt = &f.FailedAt
	}
	if e, err := wire.Parse(payload, 0); err == nil {
		v.Class, v.Args, v.Wrappers = shown(rules, e)
		if ref, ok := wire.ReferenceOf(e); ok {
			v.KeptAs, v.KeptSize = ref.ID, ref.Size
			e.Class = ref.Class
		}
		v.Class = filter.ClassOf(e, nil)
	} else {
		v.Class = filter.ClassOf(e, err)
	}
	return v
}

// maxGroups limits the groups: each message that cannot be masked makes one.
const maxGroups = 2000

// GroupFailures groups the failures that q selects. After maxGroups, other kinds are only counted.
func GroupFailures(ctx context.Context, s *store.Store, q FailureQuery) (FailureGroups, error) {
	out, groups := FailureGroups{Groups: []*FailureGroup{}}, map[[4]string]*FailureGroup{}
	looked, partial, err := EachFailure(ctx, s, q, func(v *Failure) {
		pattern := filter.Mask(v.Error)
		key := [4]string{v.Class, v.Exception, v.Queue, pattern}
		g := groups[key]
		switch {
		case g == nil && len(groups) >= maxGroups:
			out.Others++
			return
		case g == nil:
			g = &FailureGroup{Class: v.Class, Exception: v.Exception, Queue: v.Queue, Pattern: pattern}
			if v.Class != "" {
				g.ID = filter.GroupID(v.Class, v.Exception, v.Queue, pattern)
			}
			groups[key] = g
			out.Groups = append(out.Groups, g)
		}
		g.add(v)
	})
	if err != nil {
		return FailureGroups{}, err
	}
	out.Looked, out.Partial = looked, partial
	slices.SortStableFunc(out.Groups, func(a, b *FailureGroup) int { return b.Count - a.Count })
	return out, nil
}

// First returns the n largest groups and counts the rest in Others.
func (f FailureGroups) First(n int) FailureGroups {
	if len(f.Groups) > n {
		for _, g := range f.Groups[n:] {
			f.Others += g.Count
		}
		f.Groups = f.Groups[:n]
	}
	return f
}

// add counts a failure. Of missing or equal times the first added is the newest, as in
// EachFailure.
func (g *FailureGroup) add(v *Failure) {
	if g.Count == 0 || v.FailedAt != nil && (g.Last == nil || v.FailedAt.After(*g.Last)) {
		g.Last, g.Error, g.Example = v.FailedAt, filter.Summary(v.Error), v.Name()
	}
	if v.FailedAt != nil && (g.First == nil || v.FailedAt.Before(*g.First)) {
		g.First = v.FailedAt
	}
	g.Count++
}
