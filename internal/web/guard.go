package web

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
)

// policy is the Content-Security-Policy: only own files, nothing inline, no framing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

var errBug = &Error{Status: http.StatusInternalServerError, Code: "failed", Message: "a bug of resqued: see its log"}

type visitorKey struct{}

func visitorOf(r *http.Request) Visitor { return visitorIn(r.Context()) }

func visitorIn(ctx context.Context) Visitor {
	v, _ := ctx.Value(visitorKey{}).(Visitor)
	return v
}

// guard wraps all routes: it checks the host name, the origin and the size of requests.
func (s *Server) guard(next http.Handler) http.Handler {
	// Another site's page must not make a visitor's browser change anything.
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &Error{
			Status: http.StatusForbidden, Code: "cross_site", Message: "this request comes from a page of another site",
			Hint: "Behind a proxy, have it pass the Host header on.",
		})
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				s.log.Error("a request panicked", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
				s.fail(w, r, errBug)
			}
		}()
		if !s.knows(r.Host) {
			s.fail(w, r, &Error{
				Status: http.StatusMisdirectedRequest, Code: "host", Message: "this server is not known as " + quoted(r.Host),
				Hint: "If it is meant, start it with --host " + hostname(r.Host) + ".",
			})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		inner.ServeHTTP(w, r)
	})
}

func (s *Server) login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visitor, err := s.o.Who(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		ctx := context.WithValue(r.Context(), visitorKey{}, visitor)
		ctx = s.selecting(redact.Into(ctx, s.o.shownTo(visitor)))
		next.ServeHTTP(w, r.WithContext(view.Promising(ctx, s.o.Within)))
	})
}

// selecting returns a context for filters, which has rules already.
func (s *Server) selecting(ctx context.Context) context.Context {
	return filter.WithoutGuesses(filter.WithTenants(ctx, s.o.Tenant))
}

// shownTo returns what is hidden from a visitor.
func (o *Options) shownTo(v Visitor) *redact.Rules {
	if o.HideArgs && v.Role < Operator {
		return redact.All()
	}
	return o.Redact
}

// forAll returns a context for data that is shared by all visitors.
func (s *Server) forAll(ctx context.Context) context.Context {
	return redact.Into(ctx, s.o.shownTo(Visitor{Role: Viewer}))
}

// knows reports whether a host name is allowed. Addresses always are: DNS rebinding needs a name.
func (s *Server) knows(host string) bool {
	name := hostname(host)
	if name == "" || strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil {
		return true
	}
	return slices.ContainsFunc(s.o.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(hostname(h), name) })
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(host, "."), "["), "]")
}
