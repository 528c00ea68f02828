// Package web is resqued's dashboard as a handler for the HTTP server of a Go program: the pages,
// the JSON API under /api/v1, /metrics, /healthz and /readyz, as "resqued web" serves them
// (docs/dashboard.md). All that it shows is in Redis.
//
// The program says who asks: without Options.Who everybody may look who reaches the server, and
// nobody may change anything.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/longjob"
)

// Options are what a dashboard needs. The zero value shows the daemons of the Redis on this machine
// at the root of the server.
type Options struct {
	// URL is that of the Redis, as that of package client; empty = client.DefaultURL.
	URL string
	// Namespace is the prefix of every key; empty = client.DefaultNamespace.
	Namespace string
	// CAFile is a PEM file with the certificates to trust for TLS; empty = those of the system.
	CAFile string
	// CertFile and KeyFile are PEM files with the certificate that is presented to Redis, and its
	// key; empty = none.
	CertFile, KeyFile string
	// PathPrefix is the path under which the handler is mounted, such as "/jobs"; the requests have
	// it still (no http.StripPrefix). Empty = the root.
	PathPrefix string
	// Hosts are the names under which the server is asked for, besides localhost and addresses:
	// others are refused, so that no foreign name can be made to lead here. "*" = any.
	Hosts []string
	// Who says who asks; false = nobody who may look. Nil: everybody may look. It is not asked for
	// /healthz and /readyz, which say to all who ask that the server runs and that Redis answers.
	Who func(r *http.Request) (Visitor, bool)
	// Handlers, if not nil, has the queues, the locks and the intervals (Class.Every) of the classes.
	// The other schedules of daemons are shown as these have made them known.
	Handlers *resqued.Handlers
	// StoredSchedules and RailsEnv are as persistent_schedules and RAILS_ENV of the daemons: whether
	// these enqueue the jobs of the schedules that resque-scheduler keeps in Redis, and of which.
	StoredSchedules bool
	RailsEnv        string
	// UniqueQueues are the queues in which no two equal payloads wait, as Options.UniqueQueues of
	// package client.
	UniqueQueues []string
	// Within returns how long the jobs of a queue may wait before it is late; 0 = any time. Nil: of each queue.
	Within func(queue string) time.Duration
	// Redact says which arguments of jobs are not shown, as the key redact of the configuration:
	// "Mail=args.0,args.1.token;*=args.**.password".
	Redact string
	// HideArgs: those who are not operators see no arguments at all.
	HideArgs bool
	// Log gets what goes wrong, and who has changed what; nil = nothing.
	Log *slog.Logger
}

// Visitor is who asks.
type Visitor struct {
	// Name stands beside what he changes, in the log and among the events.
	Name string
	// Operator: he may change things, such as retry jobs, kill them, or pause queues.
	Operator bool
}

// Dashboard is an http.Handler. Close ends it.
type Dashboard struct {
	server *web.Server
	store  *store.Store
	jobs   *client.Client
	stop   context.CancelFunc
	ended  chan struct{}
}

// Handler returns a dashboard. It connects with the first request: a Redis that is away is shown as
// such. An error says which option cannot be.
func Handler(o Options) (*Dashboard, error) {
	if err := web.CheckPrefix(o.PathPrefix); err != nil {
		return nil, fmt.Errorf("web: PathPrefix is %q: %w", o.PathPrefix, err)
	}
	if o.URL == "" {
		o.URL = client.DefaultURL
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	if o.Handlers == nil {
		o.Handlers = resqued.New()
	}
	rules, err := redact.Parse(o.Redact)
	if err != nil {
		return nil, fmt.Errorf("web: Redact: %w", err)
	}
	jobs, err := client.New(client.Options{URL: o.URL, Namespace: o.Namespace, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Handlers: o.Handlers, UniqueQueues: o.UniqueQueues})
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	ca, err := rdb.ReadCA(o.CAFile)
	if err != nil {
		_ = jobs.Close()
		return nil, fmt.Errorf("web: %w", err)
	}
	cert, err := rdb.ReadCert(o.CertFile, o.KeyFile)
	if err != nil {
		_ = jobs.Close()
		return nil, fmt.Errorf("web: %w", err)
	}
	s, err := store.Open(store.Options{
		URL: o.URL, Namespace: o.Namespace, CA: ca, Cert: cert, ClientName: "resqued-web", Lease: store.DefaultLease, BeatEvery: store.DefaultBeatEvery, LockTTL: store.DefaultLease,
	})
	if err != nil {
		_ = jobs.Close()
		return nil, fmt.Errorf("web: %w", err)
	}
	d := &Dashboard{store: s, jobs: jobs, ended: make(chan struct{})}
	d.server = web.New(web.Options{
		Store: s, Jobs: jobs, Namespace: o.Namespace, PathPrefix: o.PathPrefix, Hosts: o.Hosts, Who: who(o.Who), Log: o.Log, Within: o.Within, Redact: rules, HideArgs: o.HideArgs,
		Long: func(ctx context.Context) *longjob.Client {
			return longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), o.Handlers)
		},
		Checks: view.Checks{
			Unique: func(queue string) bool { return selector.MatchAny(o.UniqueQueues, queue) },
			Schedules: view.ScheduleSources{
				Program: schedule.OfClasses(o.Handlers), Stored: o.StoredSchedules, Defaults: schedule.Defaults{Queue: queueOf(o.Handlers), RailsEnv: o.RailsEnv},
			},
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() {
		defer close(d.ended)
		d.server.Run(ctx)
	}()
	return d, nil
}

// queueOf returns what finds the queue of a class; "" = it names none.
func queueOf(h *resqued.Handlers) func(class string) string {
	return func(class string) string {
		c, ok := h.Lookup(class)
		if !ok {
			return ""
		}
		return c.Queue
	}
}

// who puts the program's answer into the form that the server takes.
func who(ask func(r *http.Request) (Visitor, bool)) func(r *http.Request) (web.Visitor, error) {
	if ask == nil {
		return nil
	}
	return func(r *http.Request) (web.Visitor, error) {
		v, ok := ask(r)
		if !ok {
			return web.Visitor{}, &web.Error{Status: http.StatusForbidden, Code: "forbidden", Message: "you may not look at this"}
		}
		role := web.Viewer
		if v.Operator {
			role = web.Operator
		}
		return web.Visitor{Name: v.Name, Role: role}, nil
	}
}

// ServeHTTP implements http.Handler. Requests that change something are refused when they come
// from another site's page.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.server.ServeHTTP(w, r) }

// Close ends acts on many records, which leave the rest as it was, and closes the connections.
// Call it once, when the server takes no requests any more.
func (d *Dashboard) Close() error {
	d.stop()
	<-d.ended
	return errors.Join(d.jobs.Close(), d.store.Close())
}
