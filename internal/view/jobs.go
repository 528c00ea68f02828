package view

import (
	"cmp"
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

// States of running jobs.
const (
	JobRuns    = "running"
	JobKilled  = "killed"  // it was told to stop
	JobStale   = "stale"   // its process's lease has expired: it is dead, or cut off from Redis
	JobForeign = "foreign" // its worker is not resqued's
)

// Job is a running job.
type Job struct {
	// ID is the payload's own, else the process and the token of the run.
	ID    string          `json:"id"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	Queue    string   `json:"queue"`
	State    string   `json:"state"`
	AgeS     int64    `json:"age_s"`
	Worker   string   `json:"worker"`

	// Detail sets the rest.
	Process string `json:"process,omitempty"`
	Token   string `json:"token,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Deaths  int    `json:"deaths,omitempty"`
	Payload string `json:"payload,omitempty"`
	// OnDeath is what happens to it if its worker process dies now: "runs again", or "fails: " and why;
	// "" = not known.
	OnDeath string `json:"on_death,omitempty"`
	// Runner is the process that performs it, as of its worker process's last heartbeat.
	Runner *store.RunnerInfo `json:"runner,omitempty"`

	// Run names the run in Redis; zero for a foreign worker's job.
	Run store.RunName `json:"-"`
	// Started is zero if unknown.
	Started time.Time `json:"-"`
	// Record is the job's in-flight record; zero for a foreign worker's job.
	Record store.Reserved `json:"-"`
	// Short names the job in tables, Name in scripts; each matches no other running job.
	Short string `json:"-"`
	Name  string `json:"-"`

	payload []byte
	rules   *redact.Rules
	runner  *store.RunnerInfo
	proc    *store.ProcInfo
}

// IfDead is OnDeath, also without Detail.
func (v *Job) IfDead() string {
	if v.proc == nil {
		return ""
	}
	return v.proc.OnDeath(v.Record)
}

// IfTheyDie says what happens to jobs, each with its OnDeath: "2 jobs run again, 1 job fails", "" if nothing is
// known.
func IfTheyDie(each []string) string {
	again, fails := 0, 0
	for _, text := range each {
		switch {
		case text == store.RunsAgain:
			again++
		case text != "":
			fails++
		}
	}
	if again+fails == 0 {
		return ""
	}
	var parts []string
	for _, of := range [...]struct {
		n         int
		one, more string
	}{{again, "runs again", "run again"}, {fails, "fails", "fail"}, {len(each) - again - fails, "is not known", "are not known"}} {
		switch {
		case of.n == 1:
			parts = append(parts, "1 job "+of.one)
		case of.n > 1:
			parts = append(parts, Grouped(int64(of.n))+" jobs "+of.more)
		}
	}
	return strings.Join(parts, ", ")
}

// runnersOf maps the tokens of running jobs to the runners of a worker process.
func runnersOf(described string) map[string]*store.RunnerInfo {
	var list []store.RunnerInfo
	if described == "" || json.Unmarshal([]byte(described), &list) != nil {
		return nil // none, or written by another version
	}
	found := map[string]*store.RunnerInfo{}
	for i := range list {
		for _, token := range list[i].Tokens {
			found[token] = &list[i]
		}
	}
	return found
}

// Running returns at most limit jobs that fit, and whether there are more; 0 = no limit.
func Running(all []*Job, m *filter.Matcher, limit int) (picked []*Job, cut bool) {
	for _, v := range all {
		if _, _, ok := m.Job(filter.Job{Queue: v.Queue, Worker: v.Worker, Payload: v.payload, At: v.Started}); !ok {
			continue
		}
		if limit > 0 && len(picked) == limit {
			return picked, true
		}
		picked = append(picked, v)
	}
	return picked, false
}

// Jobs returns all running jobs, the longest running first. If only the jobs of foreign workers
// could not be read, it returns the others with an error.
func Jobs(ctx context.Context, s WorkerStore) ([]*Job, error) {
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := s.WorkerList(ctx)
	if away(ctx, err) {
		return nil, err
	}
	now := time.Now()
	views := []*Job{}
	for i, p := range procs {
		performers := runnersOf(p.Fields[store.InfoRunners])
		for _, job := range p.Running {
			v := newJob(redact.From(ctx), job.Payload, job.Queue, job.Worker, job.StartedAt, now)
			v.proc = &procs[i]
			v.Run, v.Record, v.runner = store.RunName{Proc: p.Proc, Token: job.Token}, job, performers[job.Token]
			if v.ID == "" {
				v.ID = v.Run.String()
			}
			switch {
			case p.LeaseMS < now.UnixMilli():
				v.State = JobStale
			case p.Killed(job.Token):
				v.State = JobKilled
			default:
				v.State = JobRuns
			}
			views = append(views, v)
		}
	}
	views = append(views, foreignRuns(redact.From(ctx), workers, now)...)
	slices.SortStableFunc(views, func(a, b *Job) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	shorten(views)
	return views, err
}

// report is what a foreign worker says about its job.
type report struct {
	Queue   string          `json:"queue"`
	RunAt   string          `json:"run_at"`
	Payload json.RawMessage `json:"payload"`
}

func reported(working string) (r report, ok bool) {
	ok = json.Unmarshal([]byte(working), &r) == nil
	return r, ok
}

// foreignRuns returns the jobs that foreign workers report.
func foreignRuns(rules *redact.Rules, workers []store.WorkerInfo, now time.Time) []*Job {
	var views []*Job
	for _, w := range workers {
		said, ok := reported(w.Working)
		if w.Name.Ours || !ok {
			continue
		}
		started, _ := time.Parse(time.RFC3339, said.RunAt)
		v := newJob(rules, said.Payload, said.Queue, w.ID, started, now)
		v.State = JobForeign
		if v.ID == "" {
			v.ID = w.ID
		}
		views = append(views, v)
	}
	return views
}

// Detail fills in what is only shown for single jobs.
func (v *Job) Detail() {
	v.Process, v.Token, v.Lock = v.Run.Proc, v.Run.Token, v.LockKey()
	v.Fence, v.Deaths, v.Payload = v.Record.Fence, v.Record.Deaths, v.rules.Payload(v.payload)
	v.Runner, v.OnDeath = v.runner, v.IfDead()
}

// LockKey returns the key of the job's lock as it may be shown, or "".
func (v *Job) LockKey() string {
	if v.Record.LockKey == "" || !v.rules.Any() {
		return v.Record.LockKey
	}
	var args []byte
	if e, err := wire.Parse(v.payload, 0); err == nil {
		args = []byte(e.Args.String())
	}
	return v.rules.Key(store.LocketLock, v.Class, args, v.Record.LockKey, v.Wrappers...)
}

func newJob(rules *redact.Rules, payload []byte, queue, worker string, started, now time.Time) *Job {
	v := &Job{Queue: queue, Worker: worker, Args: json.RawMessage("null"), rules: rules, payload: payload, Started: started}
	if !started.IsZero() {
		v.AgeS = seconds(now.Sub(started))
	}
	if e, err := wire.Parse(payload, 0); err == nil {
		v.ID = e.ID
		v.Class, v.Args, v.Wrappers = shown(rules, e)
	}
	return v
}
