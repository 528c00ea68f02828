package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

const (
	// readyPatience is how long Redis may take to answer, readyKept how long the result is reused:
	// without a login, visitors must not cause more load.
	readyPatience = 2 * time.Second
	readyKept     = time.Second
)

// probes are for supervisors and load balancers. They need no login and reveal nothing else. With
// several stores they need one, as their paths would reveal names (see Stores).
func (o *Options) probes() []route {
	role := Role(0)
	if o.storeNames != nil {
		role = Viewer
	}
	return []route{
		{Method: http.MethodGet, Path: "/healthz", Role: role, Doc: "whether this server answers", raw: (*Server).healthz},
		{Method: http.MethodGet, Path: "/readyz", Role: role, Doc: "whether Redis answers it", raw: (*Server).readyz},
	}
}

// healthz answers that the server runs.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	probed(w, r, nil)
	return nil
}

// readyz answers whether Redis can be read.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	probed(w, r, s.ready.ask(r.Context(), s.o.Store.Ping, s.log))
	return nil
}

// probed answers a probe, without the reason: it contains names and addresses.
func probed(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		write(w, r, http.StatusServiceUnavailable, []byte("not ready: Redis does not answer as it should; the log says why\n"))
		return
	}
	write(w, r, http.StatusOK, []byte("ok\n"))
}

// readiness is whether Redis answers, asked by one probe at a time and at most once in readyKept.
type readiness struct {
	turn  chan struct{}
	asked time.Time // when the answer came or failed; zero = never
	err   error
}

func newReadiness() readiness { return readiness{turn: make(chan struct{}, 1)} }

// ask returns nil if Redis answers. The ping outlives its probe, as others want the result too.
func (a *readiness) ask(ctx context.Context, ping func(context.Context) error, log *slog.Logger) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !a.asked.IsZero() && time.Since(a.asked) < readyKept {
		return a.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyPatience)
	defer cancel()
	before, first := a.err, a.asked.IsZero()
	a.err = ping(ctx)
	a.asked = time.Now()
	switch {
	case a.err != nil && (first || before == nil):
		log.Warn("not ready: Redis does not answer as it should", slog.Any("error", a.err))
	case a.err == nil && before != nil:
		log.Info("ready: Redis answers again")
	}
	return a.err
}

// pingAny returns nil as soon as one store answers: a store that is away must not hide the others.
func (s *Stores) pingAny(ctx context.Context) error {
	answers := make(chan error, len(s.servers))
	for _, one := range s.servers {
		go func() { answers <- one.o.Store.Ping(ctx) }()
	}
	var errs []error
	for range s.servers {
		err := <-answers
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
