package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lockLimit is how many locks are listed unless told otherwise, lockCheckLimit
	// how many are looked at by --check.
	lockLimit      = 1000
	lockCheckLimit = 100_000
	// lockCompletions bounds the keys that a shell or a question for the nearest
	// one gets.
	lockCompletions = 200
)

// lockView is one lock as people see it.
type lockView struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Holder is the worker that runs the job; null if nobody is known to.
	Holder *string `json:"holder"`
	// AgeS is for how many seconds the job has held the lock, or has waited; null =
	// not known. TTLS is when Redis removes the key; null = never.
	AgeS  *int64 `json:"age_s"`
	TTLS  *int64 `json:"ttl_s"`
	State string `json:"state"`
	// ExpiresS is in how many seconds the lock's own time is over, negative if it
	// was; null = it has none.
	ExpiresS *int64 `json:"expires_s"`
	// Class, Args and Queue are those of the job that holds the lock or waits. Args
	// are null if they are long.
	Class string          `json:"class,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	Queue string          `json:"queue,omitempty"`

	// The rest is only shown for single locks.
	Value   string `json:"value,omitempty"`
	Process string `json:"process,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	// Sequence is the fencing token of a lock in PostgreSQL.
	Sequence int64  `json:"sequence,omitempty"`
	Payload  string `json:"payload,omitempty"`
	// Waiting are queues in which jobs are known to wait for the lock.
	Waiting []string `json:"waiting,omitempty"`

	info store.LockInfo
}

func (a *cli) locksCommand() *cobra.Command {
	var kind string
	var check bool
	limit := lockLimit
	ls := func(c *cobra.Command, _ []string) error {
		switch kind {
		case "", store.LocketLock, store.TimeoutLock, store.LonerMarker, postgresLock:
		default:
			return usage("", "--kind %q: use locket, timeout, loner or postgres", wire.Printable(kind, 200))
		}
		if limit < 1 {
			return usage("", "--limit %d: use 1 or more", limit)
		}
		most := limit
		if check && !c.Flags().Changed("limit") {
			most = lockCheckLimit
		}
		r, err := a.load(c)
		if err != nil {
			return err
		}
		return a.listLocks(c.Context(), r.Config, kind, most, check)
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&kind, "kind", "", "only these: locket, timeout, loner or postgres")
		c.Flags().IntVar(&limit, "limit", lockLimit, "how many locks to list at most")
		c.Flags().BoolVar(&check, "check", false, "exit with 3 if there are orphans")
		_ = c.RegisterFlagCompletionFunc("kind", words(store.LocketLock, store.TimeoutLock, store.LonerMarker, postgresLock))
		return c
	}
	parent := flags(&cobra.Command{
		Use: "locks", Short: "list locks and who holds them, or release one", RunE: ls,
		Long: `List locks and who holds them. KIND is

  locket   a job lock: of jobs with the same key one runs at a time
  timeout  a class lock, perhaps with a time limit
  loner    the marker of a job that waits and lets no equal one wait beside it
  postgres a lock in the table of locker, where database_url names a PostgreSQL: of a
           class, or of anybody else

and STATE is

  held     its job runs, or, with a marker, waits
  stale    its job's process has no lease: it is dead, or cut off from Redis; the
           lock goes when the job is recovered
  expired  its time is past, but its job still runs, or waits; in PostgreSQL: its
           holder is dead, or cut off, and whoever wants the lock takes it over
  orphan   its job is gone; whoever wants the lock takes it over
  foreign  somebody else's (a Ruby gem's, for example), who does not tell more

Locks that are kept in another Redis show with --redis-url; who holds them is not
known there, and no orphan is called one. Those in PostgreSQL are released with
"locker release".`,
		Example: "  " + a.name + " locks --kind timeout\n  " + a.name + " locks --check\n" +
			"  " + a.name + " locks release lock:Graph:42",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(
		flags(&cobra.Command{
			Use: "ls", Short: "list locks (what the bare noun does)", Args: exactly(0, "no arguments"), RunE: ls,
		}),
		a.locksShowCommand(), a.locksReleaseCommand(), a.locksWaitingCommand(), a.locksUniqueCommand(),
		a.locksRepairCommand())
	return parent
}

func (a *cli) listLocks(ctx context.Context, c config.Config, kind string, limit int, check bool) error {
	l := lockListing()
	shown, orphans := 0, 0
	if kind != postgresLock {
		s, err := app.OpenStore(c, "resqued-cli")
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		locks, cut, err := s.Locks(ctx, kind, limit)
		if err != nil {
			return err
		}
		for _, lock := range locks {
			if lock.State == store.LockOrphan {
				orphans++
			}
			l.addLock(viewLock(lock))
		}
		shown, l.partial = len(locks), cut
	}
	cut := l.partial
	if kind == "" || kind == postgresLock {
		rows, all, err := a.postgresLocks(ctx, c.DatabaseURL, kind, limit-shown)
		if err != nil {
			return err
		}
		for _, r := range rows {
			l.addRow(r)
		}
		shown, cut = shown+len(rows), cut || len(rows) > 0 && !all
		l.partial = l.partial || !all
	}
	if err := a.print(l); err != nil {
		return err
	}
	if cut {
		a.note("only %s are shown; there are more, see --limit", plural(shown, "lock"))
	}
	if shown == 0 && a.flags.output != outJSON && a.flags.output != outName {
		a.note("no locks")
	}
	if check && orphans > 0 {
		a.note("%s without a job; see: %s locks release --help", plural(orphans, "lock"), a.name)
		return exitCode(exitUnhealthy)
	}
	return nil
}

func lockListing() *listing {
	return &listing{columns: []column{
		{title: "KIND"},
		{title: "KEY"},
		{title: "HOLDER"},
		{title: "AGE", right: true},
		{title: "TTL", right: true},
		{title: "STATE", colour: lockColour},
		{title: "QUEUE", wide: true},
		{title: "ARGS", wide: true},
		{title: "LIMIT", right: true, wide: true},
		{title: "PROCESS", wide: true},
		{title: "VALUE", wide: true},
	}}
}

func (l *listing) addLock(v *lockView) {
	job := v.info.Job
	if job == nil {
		job = &store.LockJob{}
	}
	held := ""
	if d := v.info.Age(); d > 0 {
		held = age(d)
	}
	value := v.info.Value
	item := *v
	l.add(v.Key, &item, v.Kind, v.Key, v.holder(), held, v.ttl(), v.State,
		job.Queue, job.Args, v.limit(), v.info.Proc, value)
}

func viewLock(lock store.LockInfo) *lockView {
	v := &lockView{Kind: lock.Kind, Key: lock.Key, State: lock.State, info: lock}
	whole := func(d time.Duration) *int64 {
		n := int64(d / time.Second)
		return &n
	}
	if lock.TTL >= 0 {
		v.TTLS = whole(lock.TTL)
	}
	if !lock.Expires.IsZero() {
		v.ExpiresS = whole(lock.Expires.Sub(lock.At))
	}
	if d := lock.Age(); d > 0 {
		v.AgeS = whole(d)
	}
	if job := lock.Job; job != nil {
		v.Class, v.Queue = job.Class, job.Queue
		if v.Args = json.RawMessage("null"); json.Valid([]byte(job.Args)) {
			v.Args = json.RawMessage(job.Args)
		}
		if job.Worker != "" {
			v.Holder = &job.Worker
		}
	}
	return v
}

// holder says in a few words who holds the lock.
func (v *lockView) holder() string {
	lock := v.info
	switch {
	case v.State == store.LockForeign:
		return "foreign"
	case v.State == store.LockOrphan:
		return "no such job"
	case lock.Job == nil:
		return lock.Proc // a record that is not readable, or kept elsewhere
	case lock.Kind == store.LonerMarker:
		return "waits in " + lock.Job.Queue
	}
	return workerText(lock.Job.Worker) + " " + lock.Job.Class
}

// workerText is a worker id without the queues: they are the longest part of it.
func workerText(id string) string {
	name, err := wire.ParseWorkerID(id)
	if err != nil || !name.Ours {
		return id
	}
	return fmt.Sprintf("%s:%d.%d.%d", name.Host, name.PID, name.Slot, name.Thread)
}

// ttl says when the lock goes by itself.
func (v *lockView) ttl() string {
	switch {
	case v.info.TTL >= 0:
		return age(v.info.TTL)
	case v.info.Expires.IsZero():
		return "none"
	}
	return v.limit() // the gem leaves it to whoever comes next
}

// limit says when the time of a class lock or marker is over.
func (v *lockView) limit() string {
	if v.info.Expires.IsZero() {
		return ""
	}
	if left := v.info.Expires.Sub(v.info.At); left > 0 {
		return age(left)
	}
	return "past"
}

func lockColour(state string) string {
	switch state {
	case store.LockHeld:
		return green
	case store.LockOrphan:
		return red
	case store.LockStale, store.LockExpired:
		return yellow
	}
	return ""
}
