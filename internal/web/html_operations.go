package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

const (
	// operationsKept is how many operations are remembered, operationsAtOnce how many may run.
	operationsKept   = 20
	operationsAtOnce = 4
)

// operations are bulk changes in the background. Each record is changed in a step of its own: if
// the server dies, the rest stays as it is, and nothing is done twice.
type operations struct {
	beside *beside

	mu   sync.Mutex
	all  []*operation
	last int
}

type operation struct {
	id, what, back string
	total          int64
	done           atomic.Int64
	cancel         context.CancelFunc

	mu    sync.Mutex
	ended time.Time
	did   int
	err   error
}

// start begins an operation and returns its id. do reports the records it has passed.
func (o *operations) start(what string, total int64, back string, do func(ctx context.Context, progress func(done int)) (int, error)) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	under := 0
	for _, one := range o.all {
		if !one.over() {
			under++
		}
	}
	if under >= operationsAtOnce {
		return "", &Error{Status: http.StatusConflict, Code: "busy", Message: view.Plural(under, "act") + " on many records are under way", Hint: "Wait until one of them has ended."}
	}
	ctx, cancel := context.WithCancel(o.beside.ctx) // it outlives the request
	one := &operation{id: strconv.Itoa(o.last + 1), what: what, back: back, total: total, cancel: cancel}
	if !o.beside.run(func(context.Context) {
		defer cancel()
		n, err := func() (n int, err error) {
			defer o.beside.caught(&err)
			return do(ctx, func(done int) { one.done.Store(int64(done)) })
		}()
		one.mu.Lock()
		defer one.mu.Unlock()
		one.ended, one.did, one.err = time.Now(), n, err
	}) {
		cancel()
		return "", errStopping()
	}
	o.last++
	o.all = append(o.all, one)
	if i := slices.IndexFunc(o.all, (*operation).over); len(o.all) > operationsKept && i >= 0 {
		o.all = slices.Delete(o.all, i, i+1)
	}
	return one.id, nil
}

func (o *operation) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.ended.IsZero()
}

// operationState is the progress of an operation.
type operationState struct {
	ID   string `json:"id"`
	What string `json:"what"`
	// Total counts the selected records, Looked those it has passed, Done the changed ones.
	Total  int64 `json:"total"`
	Looked int64 `json:"looked"`
	Done   int64 `json:"done"`
	Ended  bool  `json:"ended"`
	// Error is why it stopped early.
	Error string `json:"error,omitempty"`
}

func (o *operation) state() operationState {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := operationState{ID: o.id, What: o.what, Total: o.total, Looked: min(o.done.Load(), o.total), Done: int64(o.did), Ended: !o.ended.IsZero()}
	if o.err != nil {
		e := actError(partly(o.err, o.did))
		v.Error = strings.TrimSpace(e.Message + ". " + e.Hint)
	}
	return v
}

func (o *operations) find(id string) (*operation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.IndexFunc(o.all, func(one *operation) bool { return one.id == id }); i >= 0 {
		return o.all[i], nil
	}
	return nil, &Error{
		Status: http.StatusNotFound, Code: "not_found", Message: "this server knows of no such act",
		Hint: "Acts are forgotten when the server is started again: the list of failures shows what is left.",
	}
}

func (s *Server) operationPage(r *http.Request) (pages.Page, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return nil, err
	}
	now, back := one.state(), one.back
	if redact.From(r.Context()).Everything() {
		back, _, _ = strings.Cut(back, "?") // the conditions may be on arguments
	}
	p := &pages.Operation{Frame: s.frame(r, "failed", one.what), What: one.what, Total: now.Total, Done: now.Looked, Back: pages.Address(back)}
	if !now.Ended {
		p.Cancel = p.Path("/operations", one.id)
		return p, nil
	}
	p.Ended, p.Refresh = true, 0
	p.Done, p.Err = now.Done, now.Error
	if p.Err == "" {
		p.Failed = max(0, now.Total-now.Done)
	}
	return p, nil
}

func (s *Server) actOnOperation(r *http.Request) (answer, error) {
	if r.PostForm.Get("act") != "cancel" {
		return answer{}, unknownAct(r)
	}
	_, err := s.stopOperation(r)
	return answer{to: s.at("/operations", named(r, "id"))}, err
}
