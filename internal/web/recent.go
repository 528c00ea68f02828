package web

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/web/pages"
)

// errNotYet is why nothing newer is shown while a read takes long.
var errNotYet = &Error{Status: http.StatusServiceUnavailable, Code: "unreachable", Message: "Redis has not answered yet", Hint: awayHint}

// errDatabaseNotYet is errNotYet for PostgreSQL.
var errDatabaseNotYet = &Error{Status: http.StatusServiceUnavailable, Code: "unreachable", Message: "PostgreSQL has not answered yet"}

// recent is data read in the background, so that requests can show older data without waiting.
type recent[T any] struct {
	mu   sync.Mutex
	part pages.Widget[T]
	// begun is when the read of part began, next when another one may begin.
	begun, next time.Time
	reading     *reading
}

// reading is a read in progress, until done is closed. It may have panicked.
type reading struct {
	begun    time.Time
	done     chan struct{}
	panicked any
}

// kept is get for totalsEvery, and at least fifty times the read's duration, unless Redis was
// away.
func (c *recent[T]) kept(ctx context.Context, s *sampler, read func(ctx context.Context) (T, error)) pages.Widget[T] {
	return c.get(ctx, s, totalsEvery, read)
}

// get returns the data, reread if it is older than keep or keep is 0. Concurrent requests share a
// read, unless it began before the last change.
func (c *recent[T]) get(ctx context.Context, s *sampler, keep time.Duration, read func(ctx context.Context) (T, error)) pages.Widget[T] {
	p := patienceOf(ctx)
	c.mu.Lock()
	if keep > 0 && time.Now().Before(c.next) {
		defer c.mu.Unlock()
		return c.part
	}
	one, known := c.reading, c.part.OK
	if !p.gone && (one == nil || keep == 0 && s.changedSince(one.begun)) {
		one = c.begin(ctx, s.beside, keep, read)
	}
	c.mu.Unlock()
	answered := one != nil && p.await(ctx, s, one.done, known)
	if answered && one.panicked != nil {
		panic(one.panicked) // as if the request had read it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	part := c.part
	if !answered {
		part.Err = errNotYet
	}
	return part
}

// begin starts a read that does not depend on its request. c.mu must be held.
func (c *recent[T]) begin(ctx context.Context, b *beside, keep time.Duration, read func(ctx context.Context) (T, error)) *reading {
	one := &reading{begun: time.Now(), done: make(chan struct{})}
	c.reading = one
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sampleTimeout)
	if !b.run(func(server context.Context) {
		defer context.AfterFunc(server, cancel)()
		defer cancel()
		defer close(one.done)
		defer func() {
			if p := recover(); p != nil {
				one.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
				c.mu.Lock()
				defer c.mu.Unlock()
				c.reading = nil
			}
		}()
		data, err := read(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.reading == one {
			c.reading = nil
		}
		if one.begun.Before(c.begun) {
			return // a later read has already ended
		}
		c.part.Take(data, err)
		pause := modest * time.Since(one.begun)
		if err != nil {
			keep = min(keep, sampleEvery)
		}
		if rdb.Unreachable(err) && ctx.Err() == nil {
			pause = 0 // Redis was idle
		}
		c.begun, c.next = one.begun, time.Now().Add(max(keep, pause))
	}) {
		cancel()
		c.reading = nil
		c.part.Err = errStopping()
		close(one.done)
	}
	return one
}

// patience is a request's: once it has waited in vain for Redis, it waits no more.
type patience struct{ gone bool }

type patienceKey struct{}

func withPatience(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, &patience{})
}

func patienceOf(ctx context.Context) *patience {
	if p, ok := ctx.Value(patienceKey{}).(*patience); ok {
		return p
	}
	return &patience{}
}

// await waits for a read, if known only briefly, as older data can be shown, else while Redis
// answers.
func (p *patience) await(ctx context.Context, s *sampler, done <-chan struct{}, known bool) bool {
	wait := sampleWait
	if p.gone {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	if !known && !p.gone && s.answers(ctx) {
		select {
		case <-done:
			return true
		case <-ctx.Done():
		}
	}
	p.gone = true
	return false
}

// answers reports whether Redis answers promptly.
func (s *sampler) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, sampleWait/2)
	defer cancel()
	return s.o.Store.Ping(ctx) == nil
}

const (
	// remembered is how many parts of pages are kept, for rememberedFor, in case Redis goes away.
	remembered    = 32
	rememberedFor = 10 * time.Minute
	// maxPart limits the name of a part in bytes: it includes a page's parameters.
	maxPart = 1 << 10
)

// parts are parts of pages, by name, that are read for each request.
type parts struct {
	mu  sync.Mutex
	all []namedPart
}

type namedPart struct {
	name string
	used time.Time
	part any // a *recent
}

// of returns the part with a name, made by fresh if there is none.
func (c *parts) of(name string, fresh func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.all = slices.DeleteFunc(c.all, func(p namedPart) bool { return now.Sub(p.used) > rememberedFor })
	i := slices.IndexFunc(c.all, func(p namedPart) bool { return p.name == name })
	if i < 0 {
		if len(c.all) == remembered {
			c.all = slices.Delete(c.all, 0, 1)
		}
		c.all = append(c.all, namedPart{name: name, part: fresh()})
		i = len(c.all) - 1
	}
	one := c.all[i]
	one.used = now
	c.all = append(slices.Delete(c.all, i, i+1), one) // sorted by last use
	return one.part
}

// part reads a part of a page; if Redis takes over a second, it is what the page showed last.
func part[T any](s *Server, r *http.Request, name string, read func(ctx context.Context) (T, error)) pages.Widget[T] {
	c := &recent[T]{}
	if name = fmt.Sprintf("%s %s %s", visitorOf(r).Role, name, r.URL.RequestURI()); len(name) <= maxPart {
		if known, ok := s.parts.of(name, func() any { return c }).(*recent[T]); ok {
			c = known
		}
	}
	return c.get(r.Context(), s.sampler, 0, read)
}

// found is part for a page about one thing: the error is why there is no such page.
func found[T any](s *Server, r *http.Request, name string, read func(ctx context.Context) (T, error)) (pages.Widget[T], error) {
	p := part(s, r, name, read)
	if !p.OK || p.Err != nil && asError(p.Err).Status < http.StatusInternalServerError {
		return p, p.Err
	}
	return p, nil
}
