package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued"
)

// ledger knows outside of Redis what was pushed, and what the code of jobs has seen. It is the judge of safety:
//
//	alone      two runs of equal jobs never overlap (job locks)
//	limited    no more jobs of a class run at once than its limit lets
//	at most    a job of a class with at_most_once never begins twice
//	once
//	known      nothing runs that was not pushed
//	deaths     a job that kills its process does so max_deaths times, four times as often if its master died too
type ledger struct {
	mu     sync.Mutex
	began  time.Time
	jobs   map[string]*account // by class and arguments
	most   int                 // jobs of a class that may run at once; 0 = any number
	errors []string
	trace  []string
}

// account is what happened to equal jobs.
type account struct {
	pushed, removed int64
	starts          int64
	done, fails     int64
	live            map[*run]bool
}

// unique is the class of the jobs of the unique queue.
const unique = "Uniq"

type run struct {
	l   *ledger
	a   *account
	p   *process
	key string
}

func (l *ledger) of(key string) *account {
	a := l.jobs[key]
	if a == nil {
		a = &account{live: map[*run]bool{}}
		l.jobs[key] = a
	}
	return a
}

// note adds a line to the trace, with the simulated time.
func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(format, args...)
}

func (l *ledger) noteLocked(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf("%9.3fs  ", time.Since(l.began).Seconds())+fmt.Sprintf(format, args...))
}

func (l *ledger) wrongLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.errors = append(l.errors, text)
	l.noteLocked("WRONG: %s", text)
}

func (l *ledger) pushed(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).pushed++
}

func (l *ledger) removed(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(key).removed += n
}

// start notes that a job begins; nil = its process is dead, and nothing runs.
func (l *ledger) start(p *process, job *resqued.Job) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.buried {
		return nil
	}
	key := job.Class + job.Args.String()
	a := l.of(key)
	r := &run{l: l, a: a, p: p, key: key}
	l.noteLocked("%s starts %s", p.name, key)
	for other := range a.live {
		l.wrongLocked("alone: %s runs in %s and in %s at once", key, other.p.name, p.name)
	}
	if n := l.runningLocked(job.Class); l.most > 0 && n >= l.most {
		l.wrongLocked("limited: %s begins in %s while %d of its class run", key, p.name, n)
	}
	a.starts++
	if a.starts > a.pushed && job.Class == "Once" {
		l.wrongLocked("at most once: %s began %d times and was pushed %d times", key, a.starts, a.pushed)
	}
	if job.Class == "Crash" && a.starts > hopeless*maxDeaths*a.pushed {
		l.wrongLocked("deaths: %s has taken %d processes with it and was pushed %d times", key, a.starts, a.pushed)
	}
	if a.pushed == 0 {
		l.wrongLocked("known: %s was never pushed", key)
	}
	a.live[r] = true
	return r
}

func (l *ledger) runningLocked(class string) (n int) {
	for key, a := range l.jobs {
		if strings.HasPrefix(key, class+"[") {
			n += len(a.live)
		}
	}
	return n
}

func (r *run) end(done bool) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if !r.a.live[r] {
		return // its process is dead
	}
	delete(r.a.live, r)
	if r.l.noteLocked("%s ends %s, done: %t", r.p.name, r.key, done); done {
		r.a.done++
	} else {
		r.a.fails++
	}
}

// died ends the runs of a process.
func (l *ledger) died(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.buried = true
	l.noteLocked("%s is dead: %s", p.name, p.exit)
	for _, a := range l.jobs {
		for r := range a.live {
			if r.p == p {
				delete(a.live, r)
			}
		}
	}
}

// settle judges the end of all: each job that was pushed and not removed has been done or is recorded as failed.
func (l *ledger) settle(failed map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for key := range l.jobs {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		a := l.jobs[key]
		due := a.pushed - a.removed
		if strings.HasPrefix(key, unique) {
			due = min(due, 1)
		}
		if a.done+failed[key] < due {
			l.wrongLocked("lost: %s was pushed %d times and removed %d times, %d were done and %d are recorded as failed", key, a.pushed, a.removed, a.done, failed[key])
		}
		if len(a.live) > 0 {
			l.wrongLocked("endless: %s still runs", key)
		}
	}
}

// total returns how many jobs were due, without those of the unique queue.
func (l *ledger) total() (due int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.jobs {
		if !strings.HasPrefix(key, unique) {
			due += a.pushed - a.removed
		}
	}
	return due
}
