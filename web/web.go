// Package web is resqued's dashboard as an http.Handler for a Go program: the pages, the JSON API
// under /api/v1, /metrics, /healthz and /readyz, as "resqued web" serves them (docs/dashboard.md).
// All that it shows is in Redis.
//
// Options.Who decides about visitors. Without it, all who reach the server may look and none may
// change anything.
package web

import (
	"cmp"
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

// Options configure a dashboard. The zero value serves the Redis on this machine at the server's
// root.
type Options struct {
	// URL is the URL of Redis, as in package client; empty = client.DefaultURL.
	URL string
	// Namespace is the prefix of every key; empty = client.DefaultNamespace.
	Namespace string
	// CAFile is a PEM file with the certificates to trust for TLS; empty = the system's.
	CAFile string
	// CertFile and KeyFile are PEM files with the client certificate for Redis and its key; empty
	// = none.
	CertFile, KeyFile string
	// PathPrefix is the path under which the handler is mounted, such as "/jobs"; empty = the
	// root. Requests must still have it: don't use http.StripPrefix.
	PathPrefix string
	// Hosts are the allowed host names, besides localhost and addresses. Others are refused,
	// against DNS rebinding. "*" = any.
	Hosts []string
	// The function Who returns the visitor behind a request, or false to deny access. If nil, anyone
	// may look. It is not called for /healthz and /readyz, which answer to anyone.
	Who func(r *http.Request) (Visitor, bool)
	// Handlers, if not nil, provide the queues, locks and intervals (Class.Every) of classes.
	// Other schedules are shown as daemons have published them.
	Handlers *resqued.Handlers
	// StoredSchedules and RailsEnv are the daemons' persistent_schedules and RAILS_ENV: whether
	// they enqueue the jobs of schedules that resque-scheduler keeps in Redis, and for which
	// environment.
	StoredSchedules bool
	RailsEnv        string
	// UniqueQueues are the queues that hold equal payloads only once, as in client.Options.
	UniqueQueues []string
	// Within returns how long jobs of a queue may wait before the queue is late; 0 = any time.
	// Nil: any time for each queue.
	Within func(queue string) time.Duration
	// Redact says which arguments of jobs are hidden, as the key redact of the configuration:
	// "Mail=args.0,args.1.token;*=args.**.password".
	Redact string
	// HideArgs hides all arguments from visitors that are not operators.
	HideArgs bool
	// Log receives errors and changes with the visitor's name; nil = nothing is logged.
	Log *slog.Logger
}

// Visitor is the user behind a request.
type Visitor struct {
	// Name is recorded with what the visitor changes, in the log and among the events.
	Name string
	// Operator says whether the visitor may make changes: retry or kill jobs, pause queues.
	Operator bool
}

// Dashboard is an http.Handler. Call Close when the server has stopped.
type Dashboard struct {
	server *web.Server
	store  *store.Store
	jobs   *client.Client
	stop   context.CancelFunc
	ended  chan struct{}
}

// Handler returns a dashboard, or an error that names an invalid option. It connects with the
// first request; while Redis is unreachable, the pages say so.
func Handler(o Options) (*Dashboard, error) {
	if err := web.CheckPrefix(o.PathPrefix); err != nil {
		return nil, fmt.Errorf("web: PathPrefix is %q: %w", o.PathPrefix, err)
	}
	o.URL, o.Namespace = cmp.Or(o.URL, client.DefaultURL), cmp.Or(o.Namespace, client.DefaultNamespace)
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
	s, err := open(o)
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

func open(o Options) (*store.Store, error) {
	ca, err := rdb.ReadCA(o.CAFile)
	if err != nil {
		return nil, err
	}
	cert, err := rdb.ReadCert(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	return store.Open(store.Options{
		URL: o.URL, Namespace: o.Namespace, CA: ca, Cert: cert, ClientName: "resqued-web", Lease: store.DefaultLease, BeatEvery: store.DefaultBeatEvery, LockTTL: store.DefaultLease,
	})
}

// queueOf returns a function from classes to their queues; "" = unknown.
func queueOf(h *resqued.Handlers) func(class string) string {
	return func(class string) string {
		c, ok := h.Lookup(class)
		if !ok {
			return ""
		}
		return c.Queue
	}
}

// who adapts Options.Who to the server.
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

// ServeHTTP implements http.Handler. Changes that another site's page requests are refused.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.server.ServeHTTP(w, r) }

// Close stops bulk changes, which leave the rest of their records as they are, and closes the
// connections. Call it once, when the server takes no more requests.
func (d *Dashboard) Close() error {
	d.stop()
	<-d.ended
	return errors.Join(d.jobs.Close(), d.store.Close())
}
