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
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/selector"
)

// fleet holds the settings that all daemons of a namespace must share. Each daemon writes its
// own to Redis. docs/reliability.md lists them.
type fleet struct {
	JobLockKey     string   `json:"job_lock_key"`
	LocketedQueues []string `json:"locketed_queues"`
	UniqueQueues   []string `json:"unique_queues"`
	// SchedulerLock is empty for a daemon without schedules.
	SchedulerLock string `json:"scheduler_lock,omitempty"`
	// Queues are the daemon's queues. Daemons without a common queue need not agree.
	Queues []string `json:"queues"`
	// Classes are the classes with a handler, with the lock of their jobs.
	Classes map[string]string `json:"classes,omitempty"`
	// Some: there are so many classes that Classes has only those with a lock.
	Some bool `json:"some_classes,omitempty"`
	// ClassQueues are the queues that classes name for their jobs, for clients.
	ClassQueues map[string]string `json:"class_queues,omitempty"`
	// Once are the classes whose jobs run at most once.
	Once []string `json:"at_most_once,omitempty"`
	// Fair are the queues whose tenants take turns; "*" is for queues not named.
	Fair map[string]fleetFair `json:"fair,omitempty"`
	// Limits are the limits by name, each as a text.
	Limits map[string]string `json:"limits,omitempty"`
}

type fleetFair struct {
	Key string `json:"key"`
	// Weights has the number of weights and their digest. Others do not need the tenants' names.
	Weights string `json:"weights,omitempty"`
}

// maxClasses is up to how many classes those without a lock are written to Redis. With more, a
// class that has a lock in only one daemon is not noticed.
const maxClasses = 500

// inGo replaces a key computed by a function of the program, which cannot be compared.
const inGo = "computed by the program"

func fleetOf(c config.Config, handlers *resqued.Handlers) fleet {
	f := fleet{
		JobLockKey: c.JobLockKey, LocketedQueues: slices.Clone(c.LocketedQueues), UniqueQueues: slices.Clone(c.UniqueQueues),
		Queues: c.Queues.Names(), Classes: map[string]string{}, ClassQueues: map[string]string{},
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
		if h.Queue != "" {
			f.ClassQueues[name] = h.Queue
		}
		if h.AtMostOnce {
			f.Once = append(f.Once, name)
		}
	}
	for _, name := range handlers.Classes() {
		class, _ := handlers.Lookup(name)
		f.Classes[name] = goLock(class.Lock)
		if class.Queue != "" {
			f.ClassQueues[name] = class.Queue
		}
		if class.AtMostOnce {
			f.Once = append(f.Once, name)
		}
	}
	slices.Sort(f.Once)
	f.Fair, f.Limits = fleetFairs(c, handlers), fleetLimits(c, handlers)
	if len(f.Classes) > maxClasses {
		maps.DeleteFunc(f.Classes, func(_, lock string) bool { return lock == "" })
		f.Some, f.ClassQueues = true, nil
	}
	return f
}

func fleetFairs(c config.Config, handlers *resqued.Handlers) map[string]fleetFair {
	program := handlers.FairQueues()
	if c.Lines != config.LinesAuto || len(c.Fair)+len(program) == 0 {
		return nil
	}
	fairs := map[string]fleetFair{}
	for queue, own := range program {
		fairs[queue] = fleetFair{Key: inGo, Weights: fleetWeights(own.Weights)}
	}
	for queue, rule := range c.Fair {
		f := fairs[queue]
		if rule.Key != "" {
			f.Key = rule.Key
		}
		if rule.Weights != nil {
			f.Weights = fleetWeights(rule.Weights)
		}
		fairs[queue] = f
	}
	return fairs
}

// fleetLimits returns the limits by name, each as a text that says all of it but functions.
func fleetLimits(c config.Config, handlers *resqued.Handlers) map[string]string {
	limits := map[string]string{}
	set := func(name string, rule jobkey.LimitRule) {
		text, err := json.Marshal(rule)
		if err != nil { // plain data cannot fail
			panic(err)
		}
		limits[name] = string(text)
	}
	for _, l := range handlers.Limits() {
		rule := jobkey.LimitRule{Classes: l.Classes, Queues: l.Queues, Concurrency: l.Concurrency, Burst: int64(l.Burst), OnLimit: l.OnLimit, Per: l.Per}
		if l.Rate > 0 {
			rule.Rate = fmt.Sprintf("%d/%s", l.Rate, l.Period)
		}
		if l.Key != nil {
			rule.Key = inGo
		}
		if l.Cost != nil {
			rule.Cost = inGo
		}
		set(l.Name, rule)
	}
	for name, rule := range c.Limits {
		set(name, rule)
	}
	return limits
}

func fleetWeights(weights map[string]int) string {
	text, err := json.Marshal(weights) // it sorts them
	if err != nil {                    // plain data cannot fail
		panic(err)
	}
	if len(weights) == 0 {
		return ""
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%d weights, digest %s", len(weights), hex.EncodeToString(sum[:6]))
}

func (f fleetFair) text() string {
	if f.Key == "" {
		return "none"
	}
	return f.Key + ", " + cmp.Or(f.Weights, "no weights")
}

func (f fleetFair) same(o fleetFair) bool {
	unknown := f.Key != "" && o.Key != "" && (f.Key == inGo || o.Key == inGo)
	return (f.Key == o.Key || unknown) && f.Weights == o.Weights
}

func (f fleet) fairOf(queue string) fleetFair {
	if rule, ok := f.Fair[queue]; ok {
		return rule
	}
	return f.Fair["*"]
}

// fileLock describes the class lock of a command handler: which jobs exclude each other, and
// where; "" = none.
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

// goLock is fileLock for a class in Go.
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

// lockPlace adds where a lock is kept, without passwords.
func lockPlace(what, store, redis string) string {
	if redis != "" {
		return what + ", redis " + config.RedactURL(redis)
	}
	return what + ", store " + cmp.Or(store, resqued.StoreRedis)
}

// shared returns the settings as a master writes and compares them.
func (f fleet) shared() master.Shared {
	text, err := json.Marshal(f)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	sum := sha256.Sum256(text)
	return master.Shared{Digest: hex.EncodeToString(sum[:6]), Text: string(text), Differs: func(text string) []master.Difference {
		var other fleet
		if json.Unmarshal([]byte(text), &other) != nil {
			return nil // written by another version
		}
		return f.differs(other)
	}}
}

// SettingsDiffer returns the names of the settings in which two daemons differ that must share
// them. The texts are those that masters write to Redis; it ignores the text of another version.
func SettingsDiffer(one, other string) (names []string) {
	var a, b fleet
	if json.Unmarshal([]byte(one), &a) != nil || json.Unmarshal([]byte(other), &b) != nil {
		return nil
	}
	for _, d := range a.differs(b) {
		names = append(names, d.Setting)
	}
	return names
}

// differs returns the settings that two daemons should share but do not, as far as that breaks
// something.
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
	for _, queue := range f.common(o) {
		if here, there := f.fairOf(queue), o.fairOf(queue); !here.same(there) {
			add("fair of queue "+queue, here.text(), there.text(), "its tenants do not have the turns, or the shares, that one of them promises")
			break
		}
	}
	if f.SchedulerLock != "" && o.SchedulerLock != "" && f.SchedulerLock != o.SchedulerLock {
		add("scheduler_lock", f.SchedulerLock, o.SchedulerLock, "schedules may tick here and in a Ruby scheduler, twice")
	}
	if len(f.common(o)) == 0 {
		return all
	}
	limits := slices.AppendSeq(slices.Collect(maps.Keys(f.Limits)), maps.Keys(o.Limits))
	slices.Sort(limits)
	for _, name := range slices.Compact(limits) {
		if here, there := cmp.Or(f.Limits[name], "none"), cmp.Or(o.Limits[name], "none"); here != there {
			add("limit "+name, here, there, "each of them holds its own jobs to what it has")
		}
	}
	// One daemon may know a class by name, the other by a pattern.
	classes := slices.AppendSeq(slices.Collect(maps.Keys(f.Classes)), maps.Keys(o.Classes))
	slices.Sort(classes)
	for _, class := range slices.Compact(classes) {
		mine, its := f.chosen(class), o.chosen(class)
		if mine == "" || its == "" {
			continue
		}
		here, there := f.Classes[mine], o.Classes[its]
		unknown := here != "" && there != "" && (strings.HasPrefix(here, inGo) || strings.HasPrefix(there, inGo))
		if here != there && !unknown {
			add("lock of class "+class, cmp.Or(here, "none"), cmp.Or(there, "none"), "jobs of a class that should exclude each other may run at the same time")
		}
		if once := slices.Contains(f.Once, mine); once != slices.Contains(o.Once, its) {
			add("at_most_once of class "+class, fmt.Sprint(once), fmt.Sprint(!once), "a job that one of them runs at most once may run again where the other one takes it")
		}
	}
	return all
}

// chosen returns the name or pattern that applies to a class, "" if unknown.
func (f fleet) chosen(class string) string {
	if f.Some { // a name that precedes the pattern may be left out
		if _, ok := f.Classes[class]; !ok {
			return ""
		}
		return class
	}
	return selector.Choose(slices.Collect(maps.Keys(f.Classes)), class)
}

// common returns the queues that both daemons work. It does not check which queues exist: a
// pattern counts as a queue of that name.
func (f fleet) common(o fleet) []string {
	var queues []string
	entries := slices.Concat(f.Queues, o.Queues, f.LocketedQueues, o.LocketedQueues)
	for _, named := range []map[string]fleetFair{f.Fair, o.Fair} {
		entries = append(entries, slices.Sorted(maps.Keys(named))...)
	}
	for _, entry := range entries {
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

// sameSet reports whether two lists are equal apart from order and repetitions.
func sameSet(a, b []string) bool {
	a, b = slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b)))
	return slices.Equal(a, b)
}
