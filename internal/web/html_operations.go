package web

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

const (
	// operationsKept is how many acts are remembered, operationsAtOnce how many are under way at
	// most.
	operationsKept   = 20
	operationsAtOnce = 4
)

// operations are acts on many records that go on while nobody waits for an answer. Each record is
// acted on in one step of its own: a server that dies in between leaves the rest as it was, and
// nothing is done twice.
type operations struct {
	mu   sync.Mutex
	all  []*operation
	last int
	wait sync.WaitGroup
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

// start begins an act and returns its id. Do calls progress with how many records it is past.
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
	ctx, cancel := context.WithCancel(context.Background()) // it outlives the request
	o.last++
	one := &operation{id: strconv.Itoa(o.last), what: what, back: back, total: total, cancel: cancel}
	o.all = append(o.all, one)
	for i := 0; len(o.all) > operationsKept && i < len(o.all); i++ {
		if o.all[i].over() {
			o.all = append(o.all[:i:i], o.all[i+1:]...)
			break
		}
	}
	o.wait.Go(func() {
		defer cancel()
		n, err := do(ctx, func(done int) { one.done.Store(int64(done)) })
		one.mu.Lock()
		defer one.mu.Unlock()
		one.ended, one.did, one.err = time.Now(), n, err
	})
	return one.id, nil
}

func (o *operation) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.ended.IsZero()
}

// stop ends all acts and waits for them. What they have not come to stays as it was.
func (o *operations) stop() {
	o.mu.Lock()
	for _, one := range o.all {
		one.cancel()
	}
	o.mu.Unlock()
	o.wait.Wait()
}

func (o *operations) find(id string) (*operation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.all {
		if one.id == id {
			return one, nil
		}
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
	p := &pages.Operation{Frame: s.frame(r, "failed", one.what), What: one.what, Total: one.total, Done: min(one.done.Load(), one.total), Back: pages.Address(one.back)}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.ended.IsZero() {
		p.Cancel = p.Path("/operations", one.id)
		return p, nil
	}
	p.Ended, p.Refresh = true, 0
	p.Done = int64(one.did)
	p.Failed = max(0, one.total-p.Done)
	if one.err != nil {
		p.Err, p.Failed = asError(one.err).Message, 0
	}
	return p, nil
}

func (s *Server) actOnOperation(r *http.Request) (answer, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return answer{}, err
	}
	if r.PostForm.Get("act") != "cancel" {
		return answer{}, unknownAct(r)
	}
	one.cancel()
	f := s.frame(r, "", "")
	return answer{to: string(f.Path("/operations", one.id))}, nil
}
