package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

const (
	// readyPatience is how long Redis may take to answer whether it is there, readyKept for how long
	// that is said again: whoever asks without a login makes Redis do no more than that.
	readyPatience = 2 * time.Second
	readyKept     = time.Second
)

// probes are the routes of those who restart this server or send visitors to it. They have no login,
// and learn nothing else. Those of one of several stores would say which there are (see Stores).
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

// healthz says that the server runs, to all who ask.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	probed(w, r, nil)
	return nil
}

// readyz says whether the server has something new to show.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	probed(w, r, s.ready.ask(r.Context(), s.o.Store.Ping, s.log))
	return nil
}

// probed answers a probe. Why something is not as it should be has names and addresses in it: those
// who log in see it on each page, and the log has it.
func probed(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		write(w, r, http.StatusServiceUnavailable, []byte("not ready: Redis does not answer as it should; the log says why\n"))
		return
	}
	write(w, r, http.StatusOK, []byte("ok\n"))
}

// readiness is whether Redis answers, asked once at a time, and once in readyKept, however many
// want to know it.
type readiness struct {
	// turn is held by the probe that asks.
	turn  chan struct{}
	asked time.Time // when it answered, or did not; zero = never
	err   error
}

func newReadiness() readiness { return readiness{turn: make(chan struct{}, 1)} }

// ask returns nil if Redis answers. The probe that asks it may go: others want to know it, too.
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

// pingAny returns nil as soon as one of the stores answers: one that is away is not a reason to hide
// the others.
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
