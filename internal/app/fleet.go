package app

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/selector"
)

// fleet are the settings on which all daemons of a namespace have to agree, as each writes
// them to Redis. docs/reliability.md lists them.
type fleet struct {
	JobLockKey     string   `json:"job_lock_key"`
	LocketedQueues []string `json:"locketed_queues"`
	UniqueQueues   []string `json:"unique_queues"`
	// SchedulerLock counts for daemons that have schedules; else it is empty.
	SchedulerLock string `json:"scheduler_lock,omitempty"`
	// Queues are those that the daemon works: where it works none that another one
	// works, the two need not agree.
	Queues []string `json:"queues"`
	// Classes are those that it knows, and what lock their jobs take.
	Classes map[string]string `json:"classes,omitempty"`
	// Once are those of them whose jobs run at most once.
	Once []string `json:"at_most_once,omitempty"`
}

// maxClasses bounds how many classes without a lock stand in Redis. Where there are more, one
// that has a lock for one daemon alone is not noticed.
const maxClasses = 500

// inGo stands where a function of the program computes a key, which cannot be compared.
const inGo = "computed by the program"

func fleetOf(c config.Config, handlers *resqued.Handlers) fleet {
	f := fleet{
		JobLockKey: c.JobLockKey, LocketedQueues: slices.Clone(c.LocketedQueues), UniqueQueues: slices.Clone(c.UniqueQueues),
		Queues: c.Queues.Names(), Classes: map[string]string{},
	}
	for _, queue := range c.Queues.Exclude {
		f.Queues = append(f.Queues, "!"+queue)
	}
	if handlers.JobLockKeyFunc() != nil {
		f.JobLockKey = inGo
	}
	if len(c.Schedules) > 0 && !c.UntilEmpty {
		f.SchedulerLock = c.SchedulerLock
	}
	for name, h := range c.Handlers {
		f.Classes[name] = fileLock(h.Lock)
		if h.AtMostOnce {
			f.Once = append(f.Once, name)
		}
	}
	for _, name := range handlers.Classes() {
		class, _ := handlers.Lookup(name)
		f.Classes[name] = goLock(class.Lock)
		if class.AtMostOnce {
			f.Once = append(f.Once, name)
		}
	}
	slices.Sort(f.Once)
	if len(f.Classes) > maxClasses {
		maps.DeleteFunc(f.Classes, func(_, lock string) bool { return lock == "" })
	}
	return f
}

// fileLock says which jobs exclude each other by a class lock; "" = it has none.
func fileLock(l *config.HandlerLock) string {
	if l == nil {
		return ""
	}
	what := "all arguments"
	switch {
	case l.Key != "":
		what = "key " + l.Key
	case l.ClassWide:
		what = "class_wide"
	case len(l.Args) > 0:
		what = fmt.Sprintf("args %v", l.Args)
	}
	return lockPlace(what, l.Store, l.Redis)
}

func goLock(l *resqued.ClassLock) string {
	switch {
	case l == nil:
		return ""
	case l.Key != nil, l.Identifier != nil:
		return lockPlace(inGo, l.Store, l.Redis)
	case l.ClassWide:
		return lockPlace("class_wide", l.Store, l.Redis)
	default:
		return lockPlace("all arguments", l.Store, l.Redis)
	}
}

// lockPlace adds where a lock is kept.
func lockPlace(what, store, redis string) string {
	if redis != "" {
		return what + ", redis " + config.RedactURL(redis)
	}
	return what + ", store " + cmp.Or(store, resqued.StoreRedis)
}

// shared is a master's part of it.
func (f fleet) shared() master.Shared {
	text, err := json.Marshal(f)
	if err != nil { // plain data: nothing in it can fail
		panic(err)
	}
	sum := sha256.Sum256(text)
	return master.Shared{Digest: hex.EncodeToString(sum[:6]), Text: string(text), Differs: func(text string) []master.Difference {
		var other fleet
		if json.Unmarshal([]byte(text), &other) != nil {
			return nil // of another version
		}
		return f.differs(other)
	}}
}

// differs names what two daemons of a fleet should agree on and do not, where it breaks something.
func (f fleet) differs(o fleet) []master.Difference {
	var all []master.Difference
	add := func(setting, here, there, breaks string) {
		all = append(all, master.Difference{Setting: setting, Here: here, There: there, Breaks: breaks})
	}
	locked, split := false, ""
	for _, queue := range f.common(o) {
		here, there := selector.MatchAny(f.LocketedQueues, queue), selector.MatchAny(o.LocketedQueues, queue)
		locked = locked || here && there
		if here != there && split == "" {
			split = queue
		}
	}
	if split != "" {
		add("locketed_queues", list(f.LocketedQueues), list(o.LocketedQueues),
			"jobs of queue "+split+" that should exclude each other may run at the same time")
	}
	if locked && f.JobLockKey != o.JobLockKey {
		add("job_lock_key", f.JobLockKey, o.JobLockKey, "jobs that should exclude each other have different locks and may run at the same time")
	}
	if !sameSet(f.UniqueQueues, o.UniqueQueues) {
		add("unique_queues", list(f.UniqueQueues), list(o.UniqueQueues), "equal jobs may wait twice in a queue, or its keys come out of step")
	}
	if f.SchedulerLock != "" && o.SchedulerLock != "" && f.SchedulerLock != o.SchedulerLock {
		add("scheduler_lock", f.SchedulerLock, o.SchedulerLock, "schedules may tick here and in a Ruby scheduler, twice")
	}
	if len(f.common(o)) == 0 {
		return all
	}
	for _, class := range slices.Sorted(maps.Keys(f.Classes)) {
		here := f.Classes[class]
		there, known := o.Classes[class]
		if !known {
			continue
		}
		unknown := here != "" && there != "" && (strings.HasPrefix(here, inGo) || strings.HasPrefix(there, inGo))
		if here != there && !unknown {
			add("lock of class "+class, cmp.Or(here, "none"), cmp.Or(there, "none"), "jobs of a class that should exclude each other may run at the same time")
		}
		if once := slices.Contains(f.Once, class); once != slices.Contains(o.Once, class) {
			add("at_most_once of class "+class, fmt.Sprint(once), fmt.Sprint(!once), "a job that one of them runs at most once may run again where the other one takes it")
		}
	}
	return all
}

// common are the queues that both work, as far as they can be told without looking for
// those that exist: names, and patterns as names of themselves.
func (f fleet) common(o fleet) []string {
	var queues []string
	for _, entry := range slices.Concat(f.Queues, o.Queues, f.LocketedQueues, o.LocketedQueues) {
		queue := strings.TrimPrefix(entry, "!")
		if selector.MatchAny(f.Queues, queue) && selector.MatchAny(o.Queues, queue) {
			queues = append(queues, queue)
		}
	}
	return queues
}

func list(entries []string) string {
	if len(entries) == 0 {
		return "none"
	}
	return strings.Join(entries, ",")
}

// sameSet compares lists whose order means nothing: an exclusion counts wherever it stands.
func sameSet(a, b []string) bool {
	a, b = slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b)))
	return slices.Equal(a, b)
}
