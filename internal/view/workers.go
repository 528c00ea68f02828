package view

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// Kinds of workers.
const (
	KindResqued = "resqued"
	KindForeign = "foreign" // Ruby's Resque, its fork, node-resque
)

// States beyond those of a process itself.
const (
	WorkerIdle  = "idle"
	WorkerBusy  = "busy"
	WorkerStale = "stale" // its lease has expired: it is dead, or cut off from Redis
	WorkerGhost = "ghost" // registered without a process
	// WorkerBroken: the master's entry is not a hash; only its processes are known.
	WorkerBroken = "broken"
)

// Worker is a master with its processes, or one foreign worker.
type Worker struct {
	// Store is the worker's store, in a list of several stores.
	Store string `json:"store,omitempty"`
	// Worker is host:pid of a master, the whole id of a foreign worker.
	Worker  string `json:"worker"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	Busy    int    `json:"busy"`
	Threads int    `json:"threads"`
	Queues  string `json:"queues"`
	// Host, Version and Config, a digest without secrets, are set for masters; empty = unknown.
	Host    string `json:"host"`
	Version string `json:"version"`
	Config  string `json:"config"`
	// Differs are differences from most masters: version, config, or a setting that must be equal.
	Differs []string `json:"differs"`
	// ConfigDiffers are the configuration keys that differ, if known and "config" is in Differs.
	ConfigDiffers []string `json:"config_differs,omitempty"`
	// BeatS is the seconds since a heartbeat of one of its processes; null = unknown.
	BeatS     *int64    `json:"beat_s"`
	Processes []Process `json:"processes"`
	// Templates fork the runners of its processes.
	Templates []store.TemplateInfo `json:"templates,omitempty"`
	// Job is the job that a foreign worker reports.
	Job *ThreadJob `json:"job,omitempty"`

	// Format is the format that the master writes, "" = unknown; Unread: not readable here.
	Format string `json:"format,omitempty"`
	Unread bool   `json:"unread,omitempty"`

	// Problem is why the state is WorkerBroken.
	Problem string `json:"problem,omitempty"`

	// Beat is the last heartbeat of one of its processes; zero = unknown.
	Beat time.Time `json:"-"`
	// Settings is what the master has written about settings that must be equal, Keys about its
	// configuration: "key=digest", separated by blanks.
	Settings, Keys string `json:"-"`
}

// Process is a worker process.
type Process struct {
	Proc string `json:"proc"`
	PID  int    `json:"pid"`
	Slot int    `json:"slot"`
	// Alone says that the process was started for one suspect, outside the slots.
	Alone   bool   `json:"alone,omitempty"`
	State   string `json:"state"`
	Busy    int    `json:"busy"`
	Threads int    `json:"threads"`
	// RSS and Done are from the last heartbeat, BeatS seconds ago.
	RSS   int64 `json:"rss"`
	Done  int   `json:"done"`
	BeatS int64 `json:"beat_s"`
	Limit int   `json:"limit"`
	// RecycleIn is after how many jobs the process is replaced; null = any number.
	RecycleIn *int   `json:"recycle_in"`
	Version   string `json:"version"`
	// Format is the format in which the process writes; "" = unknown. Unread says that this
	// program cannot read it, so jobs may be missing here.
	Format string      `json:"format,omitempty"`
	Unread bool        `json:"unread,omitempty"`
	Jobs   []ThreadJob `json:"jobs,omitempty"`
	// Problem is why its fields or jobs are unknown, or "".
	Problem string `json:"problem,omitempty"`
	// Runners are the processes that perform jobs for this one.
	Runners []store.RunnerInfo `json:"runners,omitempty"`

	Beat time.Time `json:"-"`
}

// ThreadJob is the job of a thread, or of a foreign worker.
type ThreadJob struct {
	// ID is the job's name for "jobs"; a foreign worker's job may have none.
	ID    string          `json:"id,omitempty"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	Queue    string   `json:"queue"`
	Thread   int      `json:"thread"`
	// RunningS is how many seconds it has been running.
	RunningS int64 `json:"running_s"`

	// OnDeath is as in Job.
	OnDeath string `json:"on_death,omitempty"`

	// Stubborn says that it continues although it was told to stop or its time is over.
	Stubborn bool `json:"-"`
}

// WorkerStore is what the views of workers and running jobs need of the store.
type WorkerStore interface {
	ProcList(ctx context.Context) ([]store.ProcInfo, error)
	MasterList(ctx context.Context) (map[string]map[string]string, error)
	WorkerList(ctx context.Context) ([]store.WorkerInfo, error)
}

// FindWorkers returns the workers whose names begin with one of names, or a NotFoundError.
func FindWorkers(views []*Worker, names []string) ([]*Worker, error) {
	known := []string{}
	for _, v := range views {
		known = append(known, v.Worker)
	}
	var picked []*Worker
	for _, name := range names {
		found := false
		for _, v := range views {
			if strings.HasPrefix(v.Worker, name) {
				found = true
				if !slices.Contains(picked, v) {
					picked = append(picked, v)
				}
			}
		}
		if !found {
			return nil, &NotFoundError{Kind: "worker", Name: name, Known: known}
		}
	}
	return picked, nil
}

// Workers returns all workers: resqued's masters, then foreign ones, each by name. If only the
// latter could not be read, it returns the others with an error.
func Workers(ctx context.Context, s WorkerStore) ([]*Worker, error) {
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	masters, err := s.MasterList(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := s.WorkerList(ctx)
	if away(ctx, err) {
		return nil, err
	}
	now := time.Now()
	views := map[string]*Worker{}
	pids := map[string]bool{}
	view := func(master string) *Worker {
		if views[master] == nil {
			views[master] = &Worker{Worker: masterName(master), Kind: KindResqued, Differs: []string{}, Processes: []Process{}}
		}
		return views[master]
	}
	for id, fields := range masters {
		v := view(id)
		v.State, v.Queues = fields["state"], fields["queues"]
		v.Format, v.Unread = fields[store.InfoFormat], !store.Readable(fields)
		v.Threads = threadsOf(fields)
		_ = json.Unmarshal([]byte(fields[store.FieldTemplates]), &v.Templates) // another version's, or none
		v.Host, v.Version, v.Config, v.Settings, v.Keys = fields["host"], fields["version"], fields["config"], fields["settings"], fields["config_keys"]
		if v.Problem = fields[store.FieldUnread]; v.Problem != "" {
			v.State, v.Host = WorkerBroken, hostOf(id)
		}
	}
	for _, p := range procs {
		// A lease ends one lease time after the heartbeat that set it.
		beat := time.UnixMilli(p.LeaseMS).Add(-leaseOf(masters[masterOf(p.Proc)]))
		pv := newProcess(redact.From(ctx), p, now)
		pv.Beat, pv.BeatS = beat, seconds(now.Sub(beat))
		_ = json.Unmarshal([]byte(p.Fields[store.InfoRunners]), &pv.Runners) // as above
		pids[p.Fields["host"]+":"+p.Fields["pid"]] = true
		v := view(masterOf(p.Proc))
		v.Processes = append(v.Processes, pv)
		v.Busy += pv.Busy
		if unseen(masters[masterOf(p.Proc)]) {
			if v.Queues = p.Fields["queues"]; v.State != WorkerBroken {
				v.State = pv.State
			}
			v.Host, v.Version = p.Fields["host"], p.Fields["version"]
			v.Threads += pv.Threads
		}
		if beat.After(v.Beat) {
			v.Beat, v.BeatS = beat, new(pv.BeatS)
		}
	}
	list := make([]*Worker, 0, len(views))
	for _, v := range views {
		// A retiring process and its successor share a slot.
		slices.SortFunc(v.Processes, func(a, b Process) int {
			return cmp.Or(cmp.Compare(a.Slot, b.Slot), strings.Compare(a.Proc, b.Proc))
		})
		list = append(list, v)
	}
	list = append(list, foreignWorkers(redact.From(ctx), ids, pids, now)...)
	slices.SortStableFunc(list, func(a, b *Worker) int {
		return strings.Compare(b.Kind+"\x00"+a.Worker, a.Kind+"\x00"+b.Worker)
	})
	markDiffering(list)
	return list, err
}

// unseen reports whether the master of a process is unknown: it has gone, and its processes drain
// or wait to be recovered, or its entry cannot be read.
func unseen(master map[string]string) bool { return master == nil || master[store.FieldUnread] != "" }

// markDiffering notes which masters differ from the majority, all if there is none.
func markDiffering(masters []*Worker) {
	for _, what := range []struct {
		name string
		of   func(*Worker) string
	}{
		{"version", func(v *Worker) string { return v.Version }},
		{"config", func(v *Worker) string { return v.Config }},
	} {
		usual, several := majority(masters, what.of)
		for _, v := range masters {
			if text := what.of(v); several && text != "" && text != usual {
				v.Differs = append(v.Differs, what.name)
			}
		}
		if what.name == "config" && several {
			markKeys(masters, usual)
		}
	}
}

// markKeys notes the keys that differ from the usual configuration, or else from another master's.
func markKeys(masters []*Worker, usual string) {
	for _, v := range masters {
		i := slices.IndexFunc(masters, func(o *Worker) bool {
			return o.Keys != "" && o.Config != v.Config && (usual == "" || o.Config == usual)
		})
		if i < 0 || v.Keys == "" || v.Config == usual {
			continue
		}
		v.ConfigDiffers = v.DiffersFrom(masters[i])
	}
}

// DiffersFrom returns the configuration keys in which two masters differ. Masters write digests of the values.
func (v *Worker) DiffersFrom(other *Worker) (keys []string) {
	mine, its := strings.Fields(v.Keys), strings.Fields(other.Keys)
	for _, entry := range slices.Concat(mine, its) {
		if key, _, _ := strings.Cut(entry, "="); !slices.Contains(mine, entry) || !slices.Contains(its, entry) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Differing returns Differs with the configuration keys.
func (v *Worker) Differing() []string {
	list := slices.Clone(v.Differs)
	if i := slices.Index(list, "config"); i >= 0 && len(v.ConfigDiffers) > 0 {
		list[i] += " (" + strings.Join(v.ConfigDiffers, ", ") + ")"
	}
	return list
}

// MarkSettings notes which settings of masters differ from the majority's; differ compares two.
func MarkSettings(views []*Worker, differ func(usual, other string) []string) {
	of := func(v *Worker) string { return v.Settings }
	usual, several := majority(views, of)
	if !several {
		return
	}
	if usual == "" { // no majority: compare with the first
		usual = of(views[slices.IndexFunc(views, func(v *Worker) bool { return of(v) != "" })])
	}
	for _, v := range views {
		if v.Settings != "" && v.Settings != usual {
			v.Differs = append(v.Differs, differ(usual, v.Settings)...)
		}
	}
}

// majority returns the most frequent non-empty text, "" for a tie, and whether there are several.
func majority(masters []*Worker, of func(*Worker) string) (usual string, several bool) {
	count := map[string]int{}
	for _, v := range masters {
		if text := of(v); text != "" {
			count[text]++
		}
	}
	most := 0
	for text, n := range count {
		switch {
		case n > most:
			usual, most = text, n
		case n == most:
			usual = ""
		}
	}
	return usual, len(count) > 1
}

// foreignWorkers returns the registered workers that are not threads of known processes.
func foreignWorkers(rules *redact.Rules, ids []store.WorkerInfo, pids map[string]bool, now time.Time) []*Worker {
	var list []*Worker
	for _, w := range ids {
		name := w.Name
		if name.Ours && pids[name.Host+":"+strconv.Itoa(name.PID)] {
			continue
		}
		v := &Worker{Worker: w.ID, Kind: KindForeign, State: WorkerIdle, Threads: 1, Differs: []string{}, Processes: []Process{}}
		if w.Named {
			v.Queues, v.Host = strings.Join(name.Queues, ","), name.Host
			v.Threads = max(1, name.Processes*name.Threads)
		}
		if w.Working != "" {
			v.State, v.Busy, v.Job = WorkerBusy, 1, foreignJob(rules, w.Working, now)
		}
		if name.Ours {
			v.Kind, v.State = KindResqued, WorkerGhost
		}
		list = append(list, v)
	}
	return list
}

func newProcess(rules *redact.Rules, p store.ProcInfo, now time.Time) Process {
	number := func(field string) int {
		n, _ := strconv.Atoi(p.Fields[field])
		return n
	}
	rss, _ := strconv.ParseInt(p.Fields["rss"], 10, 64)
	v := Process{
		Proc: p.Proc, PID: number("pid"), Slot: number("slot"), State: p.Fields["state"], Busy: len(p.Running),
		Threads: number("threads"), RSS: rss, Done: number("done"), Limit: number("quota"), Version: p.Fields["version"],
		Format: p.Fields[store.InfoFormat], Unread: !store.Readable(p.Fields),
	}
	if p.Err != nil {
		v.Problem = p.Err.Error()
	}
	if p.LeaseMS < now.UnixMilli() {
		v.State = WorkerStale
	}
	if p.Fields[store.InfoAlone] != "" {
		v.Alone, v.Limit = true, 0
	}
	if v.Limit > 0 {
		v.RecycleIn = new(max(0, v.Limit-v.Done))
	}
	for _, job := range p.Running {
		r := ThreadJob{OnDeath: p.OnDeath(job), Queue: job.Queue, Args: json.RawMessage("null"), RunningS: seconds(now.Sub(job.StartedAt)), Stubborn: p.Stubborn(job.Token)}
		if e, err := wire.Parse(job.Payload, 0); err == nil {
			r.ID = e.ID
			r.Class, r.Args, r.Wrappers = shown(rules, e)
		}
		if r.ID == "" {
			r.ID = store.RunName{Proc: p.Proc, Token: job.Token}.String()
		}
		if name, err := wire.ParseWorkerID(job.Worker); err == nil {
			r.Thread = name.Thread
		}
		v.Jobs = append(v.Jobs, r)
	}
	slices.SortStableFunc(v.Jobs, func(a, b ThreadJob) int { return cmp.Compare(a.Thread, b.Thread) })
	return v
}

// IfItDies says what the death of the process does to its jobs, "" without any.
func (v Process) IfItDies() string {
	each := make([]string, len(v.Jobs))
	for i, j := range v.Jobs {
		each[i] = j.OnDeath
	}
	return IfTheyDie(each)
}

func foreignJob(rules *redact.Rules, working string, now time.Time) *ThreadJob {
	w, ok := reported(working)
	if !ok {
		return nil
	}
	r := &ThreadJob{Queue: w.Queue, Args: json.RawMessage("null")}
	if e, err := wire.Parse(w.Payload, 0); err == nil {
		r.Class, r.Args, r.Wrappers = shown(rules, e)
	}
	if t, err := time.Parse(time.RFC3339, w.RunAt); err == nil {
		r.RunningS = seconds(now.Sub(t))
	}
	return r
}

// RSS returns the memory of all processes in bytes.
func (v *Worker) RSS() int64 {
	var total int64
	for _, p := range v.Processes {
		total += p.RSS
	}
	return total
}

// RecycleIn returns after how many jobs the next process is replaced; nil = any number.
func (v *Worker) RecycleIn() *int {
	var least *int
	for _, p := range v.Processes {
		if p.RecycleIn != nil && (least == nil || *p.RecycleIn < *least) {
			least = p.RecycleIn
		}
	}
	return least
}

// threadsOf returns how many jobs a master runs at a time.
func threadsOf(fields map[string]string) int {
	slots, _ := strconv.Atoi(fields["slots"])
	threads, _ := strconv.Atoi(fields["threads"])
	return slots * threads
}

func leaseOf(fields map[string]string) time.Duration {
	if ms, err := strconv.ParseInt(fields["lease_ms"], 10, 64); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return store.DefaultLease
}

func masterOf(process string) string {
	id, err := proc.ParseIdentity(process)
	if err != nil {
		return process
	}
	return id.String()
}

func hostOf(master string) string {
	id, err := proc.ParseIdentity(master)
	if err != nil {
		return ""
	}
	return id.Host
}

func masterName(master string) string {
	id, err := proc.ParseIdentity(master)
	if err != nil {
		return master
	}
	return fmt.Sprintf("%s:%d", id.Host, id.PID)
}

// DaemonText returns host:pid, with a worker process's slot, of an id; other texts unchanged.
func DaemonText(id string) string {
	master, err := proc.ParseIdentity(id)
	if err != nil {
		return id
	}
	said := masterName(id)
	if child, ok := strings.CutPrefix(id, master.String()+":"); ok {
		slot, _, _ := strings.Cut(child, ".")
		said += " #" + slot
	}
	return said
}
