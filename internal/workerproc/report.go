package workerproc

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// reports sends the master reports and asks it for a successor. The loop owns all fields.
type reports struct {
	*shared
	threads *threads
	kills   *kills
	counted *counted
	title   func(text string) // shows what the process does

	asked     bool // the master knows that age or memory is used up
	weighed   int  // jobs done at the last memory check, at weighedAt
	weighedAt time.Time
	foundAt   time.Time // when found was last sent
}

func newReports(s *shared, threads *threads, kills *kills, counted *counted) *reports {
	r := &reports{shared: s, threads: threads, kills: kills, counted: counted, title: s.d.SetTitle}
	if r.title == nil {
		r.title = proc.SetTitle
	}
	return r
}

// report sends the master a report and the counts, and sets the process's title. If age or
// memory is used up it only asks: the master decides when a successor may start.
func (r *reports) report() {
	r.counted.send()
	size := rss()
	m := proc.Message{
		Type: proc.Beat, State: string(r.life.state), Busy: len(r.jobs), Full: r.threads.full(), Done: r.threads.done, RSS: size,
		Kills: r.kills.told, Doomed: r.kills.doomed(), LockEnd: r.lease.end(),
	}
	r.troubles.show(&m)
	r.link.tell(m)
	quota := ""
	if r.cfg.JobsPerFork > 0 {
		quota = "/" + strconv.Itoa(r.cfg.JobsPerFork)
	}
	who := fmt.Sprintf("worker %d of %d", r.id.slot+1, r.id.slots)
	if r.id.alone {
		who = "worker for a suspect"
	}
	r.title(fmt.Sprintf(proc.TitleOf+"%s: %s, %d/%d busy, %d%s done",
		who, r.life.state, len(r.jobs), r.cfg.Threads, r.threads.done, quota))
	if !r.life.running() || r.asked {
		return
	}
	switch {
	case r.cfg.MaxRSS > 0 && size > r.cfg.MaxRSS:
		r.ask(proc.Message{Type: proc.Retires, Reason: "memory", RSS: size, MaxRSS: r.cfg.MaxRSS})
	case r.cfg.MaxAge > 0 && time.Since(r.life.started) > r.cfg.MaxAge:
		r.ask(proc.Message{Type: proc.Retires, Reason: "age"})
	}
}

func (r *reports) ask(m proc.Message) {
	if err := r.link.send(m); err == nil {
		r.asked = true
	}
}

// weighEvery is the shortest time between memory checks as jobs end. A check takes some
// microseconds.
const weighEvery = 50 * time.Millisecond

// checkMemory checks the process's memory when a job has ended: until the next report, other
// jobs could use as much again.
func (r *reports) checkMemory() {
	if r.cfg.MaxRSS <= 0 || r.threads.done == r.weighed || r.asked || !r.life.running() {
		return
	}
	now := time.Now()
	if now.Sub(r.weighedAt) < weighEvery {
		return
	}
	r.weighed, r.weighedAt = r.threads.done, now
	if size := rss(); size > r.cfg.MaxRSS {
		r.ask(proc.Message{Type: proc.Retires, Reason: "memory", RSS: size, MaxRSS: r.cfg.MaxRSS})
	}
}

// found tells the master, at most once an interval, that there may be more jobs than this
// process takes.
func (r *reports) found() {
	if r.id.alone || time.Since(r.foundAt) < r.cfg.Interval {
		return
	}
	r.foundAt = time.Now()
	r.link.tell(proc.Message{Type: proc.Found})
}

func rss() int64 { return procfs.Resident(os.Getpid()) }
