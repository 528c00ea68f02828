package web

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

// maxLabelled is how many queues have their own metrics; the others are summed up as (other).
const maxLabelled = 200

// exposition writes metrics in Prometheus's text format.
type exposition struct{ bytes.Buffer }

// metric begins a metric with its type and help.
func (b *exposition) metric(name, kind, help string) {
	_, _ = fmt.Fprintf(&b.Buffer, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// gauge writes a gauge with one value.
func (b *exposition) gauge(name, help string, v float64) {
	b.metric(name, "gauge", help)
	b.value(name, v)
}

var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// value writes a value; labels alternates names and values.
func (b *exposition) value(name string, v float64, labels ...string) {
	b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		b.WriteString(sep + labels[i] + `="` + labelValue.Replace(asUTF8(labels[i+1])) + `"`)
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	b.WriteString(" " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

// asUTF8 escapes bytes that are not UTF-8; a replacement would make different names equal.
func asUTF8(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if _, size := utf8.DecodeRuneInString(name[i:]); r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	v := s.sampler.sample(r.Context())
	var b exposition
	up := v.Stats.OK && v.Stats.Err == nil
	b.gauge("resqued_redis_up", "Whether Redis has answered the last sample.", truth(up))
	b.gauge("resqued_sample_seconds", "How long the last sample has taken.", v.Took.Seconds())
	if up {
		// Old data is left out rather than shown as new.
		statMetrics(&b, v.Stats.Data)
		if v.Queues.OK && v.Queues.Err == nil {
			queueMetrics(&b, v.Queues.Data, v.Queues.At)
		}
		if v.Workers.OK && v.Workers.Err == nil {
			workerMetrics(&b, v.Workers.Data)
		}
		if v.Jobs.OK && v.Jobs.Err == nil {
			b.gauge("resqued_locks_held", "Locks that running jobs hold.", float64(view.LocksHeld(v.Jobs.Data)))
		}
		if v.Long.OK && v.Long.Err == nil {
			longMetrics(&b, v.Long.Data)
		}
		if v.Limits.OK && v.Limits.Err == nil {
			limitMetrics(&b, v.Limits.Data)
		}
		if v.Ends.OK && v.Ends.Err == nil {
			b.metric("resqued_deaths_total", "counter", "Worker processes and runners that died, since this server has begun to look.")
			b.value("resqued_deaths_total", float64(v.Ends.Data.Died))
			b.metric("resqued_recycles_total", "counter", "Worker processes that were replaced, since this server has begun to look.")
			for i, why := range store.RecycledFor {
				b.value("resqued_recycles_total", float64(v.Ends.Data.Recycled[i]), "why", why)
			}
		}
		if v.Findings.OK && v.Findings.Err == nil {
			findingMetrics(&b, v.Findings.Data)
		}
		if v.Totals.OK && v.Totals.Err == nil {
			historyMetrics(&b, v.Totals.Data)
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	write(w, r, http.StatusOK, b.Bytes())
	return nil
}

func statMetrics(b *exposition, v *view.Stats) {
	for _, m := range []struct {
		name, kind, help string
		value            float64
		total            string
	}{
		{"resqued_processed_jobs_total", "counter", "Jobs that were processed, by Resque's counter.", float64(v.Processed), "processed"},
		{"resqued_failures_total", "counter", "Jobs that have failed, by Resque's counter.", float64(v.Failed), "failed"},
		{"resqued_running_jobs", "gauge", "Jobs in hand, those of other workers included.", float64(v.Running), "running"},
		{"resqued_waiting_jobs", "gauge", "Jobs that wait in queues.", float64(v.Waiting), "waiting"},
		{"resqued_delayed_jobs", "gauge", "Jobs that wait for their time.", float64(v.Delayed), "delayed"},
		{"resqued_failed_jobs", "gauge", "Failure records, of all lists.", float64(v.Failures), "failures"},
		{"resqued_parked_jobs", "gauge", "Ends of jobs that could not be written.", float64(v.Parked), "parked"},
		{"resqued_daemons", "gauge", "Masters that live.", float64(v.Daemons), "daemons"},
		{"resqued_other_workers", "gauge", "Workers that are not resqued's.", float64(v.Others), "others"},
	} {
		if v.Known(m.total) {
			b.metric(m.name, m.kind, m.help)
			b.value(m.name, m.value)
		}
	}
}

// findingMetrics counts doctor's findings. Only existing ones have a sample: there are many codes.
func findingMetrics(b *exposition, found []view.Finding) {
	counts := map[[2]string]int{}
	for _, f := range found {
		if f.Status != view.FindingOK {
			counts[[2]string{f.Code, f.Status}]++
		}
	}
	b.metric("resqued_findings", "gauge", "Findings of doctor, by code and status (warn, fail).")
	for _, of := range slices.SortedFunc(maps.Keys(counts), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) }) {
		b.value("resqued_findings", float64(counts[of]), "code", of[0], "status", of[1])
	}
}

// longMetrics includes statuses without runs: a missing series raises no alert.
func longMetrics(b *exposition, v longstore.Statuses) {
	b.metric("resqued_longjobs", "gauge", "Long jobs that wait, run, or have ended and are not forgotten yet, by status; of very many the newest.")
	rest := v.Rest
	for _, n := range v.Runs {
		rest += n
	}
	for _, status := range []longjob.Status{
		longjob.StatusQueued, longjob.StatusRunning, longjob.StatusPaused, longjob.StatusCompleted, longjob.StatusFailed, longjob.StatusCancelled, longjob.StatusSuperseded,
	} {
		n := v.Runs[string(status)]
		rest -= n
		b.value("resqued_longjobs", float64(n), "status", string(status))
	}
	if rest > 0 {
		b.value("resqued_longjobs", float64(rest), "status", history.Other)
	}
}

func queueMetrics(b *exposition, queues []*view.Queue, at time.Time) {
	list := slices.Clone(queues)
	slices.SortStableFunc(list, func(x, y *view.Queue) int { return cmp.Compare(y.Waiting(), x.Waiting()) })
	var rest int64
	named, more := list[:0], false
	for _, q := range list {
		if len(named) < maxLabelled && q.Queue != history.Other {
			named = append(named, q)
			continue
		}
		rest, more = rest+q.Waiting(), true
	}
	list = named
	each := func(name, help string, value func(q *view.Queue) (float64, bool)) {
		b.metric(name, "gauge", help)
		for _, q := range list {
			if v, ok := value(q); ok {
				b.value(name, v, "queue", q.Queue)
			}
		}
	}
	each("resqued_queue_jobs", "Jobs that wait in a queue.", func(q *view.Queue) (float64, bool) { return float64(q.Waiting()), q.Size != nil })
	if more {
		b.value("resqued_queue_jobs", float64(rest), "queue", history.Other)
	}
	each("resqued_queue_age_seconds", "For how long the first job of a queue has waited; 0 where none waits.", func(q *view.Queue) (float64, bool) {
		if q.Oldest.IsZero() {
			return 0, q.Size != nil && q.Waiting() == 0
		}
		return max(0, at.Sub(q.Oldest).Seconds()), true
	})
	each("resqued_queue_late", "Whether the first job of a queue has waited for longer than the configuration promises, of queues with a promise.", func(q *view.Queue) (float64, bool) {
		return truth(q.Late), q.WithinS != nil
	})
	each("resqued_queue_paused", "Whether the jobs of a queue wait until it is resumed.", func(q *view.Queue) (float64, bool) {
		return truth(q.State == view.QueuePaused), true
	})
	each("resqued_queue_served", "Threads that serve the queue.", func(q *view.Queue) (float64, bool) { return float64(q.Served), !q.Unread })
	each("resqued_queue_running_jobs", "Jobs in hand that came from a queue.", func(q *view.Queue) (float64, bool) { return float64(q.Busy), !q.Unread })
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func workerMetrics(b *exposition, workers []*view.Worker) {
	type load struct {
		threads, busy, runners int
		states                 map[string]int
		rss                    int64
	}
	hosts := map[string]*load{}
	for _, v := range workers {
		if v.Kind == view.KindForeign || v.State == view.WorkerGhost || v.State == view.WorkerStale {
			continue
		}
		l := hosts[v.Host]
		if l == nil {
			l = &load{states: map[string]int{}}
			hosts[v.Host] = l
		}
		l.threads, l.busy, l.rss = l.threads+v.Threads, l.busy+v.Busy, l.rss+v.RSS()
		for _, p := range v.Processes {
			l.states[p.State]++
			for _, r := range p.Runners {
				if r.State != store.RunnerFailed {
					l.runners, l.rss = l.runners+1, l.rss+r.RSS
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(hosts))
	b.metric("resqued_threads", "gauge", "Threads of a host, by whether they have a job.")
	for _, name := range names {
		b.value("resqued_threads", float64(hosts[name].busy), "host", name, "state", "busy")
		b.value("resqued_threads", float64(max(0, hosts[name].threads-hosts[name].busy)), "host", name, "state", "idle")
	}
	b.metric("resqued_processes", "gauge", "Worker processes of a host, by state.")
	for _, name := range names {
		for _, state := range slices.Sorted(maps.Keys(hosts[name].states)) {
			b.value("resqued_processes", float64(hosts[name].states[state]), "host", name, "state", state)
		}
	}
	for _, m := range []struct {
		name, help string
		value      func(l *load) float64
	}{
		{"resqued_runners", "Runners of a host: processes that perform jobs in other languages.", func(l *load) float64 { return float64(l.runners) }},
		{"resqued_process_rss_bytes", "Resident memory of the worker processes and runners of a host.", func(l *load) float64 { return float64(l.rss) }},
	} {
		b.metric(m.name, "gauge", m.help)
		for _, name := range names {
			b.value(m.name, m.value(hosts[name]), "host", name)
		}
	}
}

// maxHistograms is how many classes, and queues, have histograms: those with most jobs.
const maxHistograms = 50

// historyMetrics are what worker processes have counted in the history.
func historyMetrics(b *exposition, totals []view.Total) {
	b.metric("resqued_jobs_total", "counter", "Jobs that have ended, by class and outcome. not_run counts jobs that went back to their queue, which have no other outcome, and dropped jobs, which are also among the done.")
	each := func(kind history.Kind, most int, do func(t *view.Total)) {
		for i := range totals {
			if t := &totals[i]; t.Kind == kind && most > 0 {
				do(t)
				most--
			}
		}
	}
	each(history.Class, history.MaxNames, func(t *view.Total) {
		b.value("resqued_jobs_total", float64(t.Runs-min(t.Runs, t.Failed)), "class", t.Name.Name, "outcome", "done")
		b.value("resqued_jobs_total", float64(t.Failed), "class", t.Name.Name, "outcome", "failed")
		b.value("resqued_jobs_total", float64(t.Unrun), "class", t.Name.Name, "outcome", "not_run")
	})
	b.metric("resqued_jobs_interrupted_total", "counter", "Jobs among those done that were interrupted: they have saved what they did and pushed the rest.")
	each(history.Class, history.MaxNames, func(t *view.Total) {
		b.value("resqued_jobs_interrupted_total", float64(t.Interrupted), "class", t.Name.Name)
	})
	b.metric("resqued_job_duration_seconds", "histogram", "Time in handlers, of the classes with most jobs.")
	each(history.Class, maxHistograms, func(t *view.Total) {
		b.histogram("resqued_job_duration_seconds", float64(t.Micros)/1e6, t.Run[:], history.RunLimit, 2, "class", t.Name.Name)
	})
	b.metric("resqued_job_wait_seconds", "histogram", "Time that jobs had waited in their queue, of the queues with most jobs; the sum is an estimate from the buckets.")
	each(history.Queue, maxHistograms, func(t *view.Total) {
		b.histogram("resqued_job_wait_seconds", waited(&t.Wait), t.Wait[:], history.WaitLimit, 1, "queue", t.Name.Name)
	})
}

// histogram writes a histogram with every n-th bucket.
func (b *exposition) histogram(name string, sum float64, buckets []uint64, limit func(int) time.Duration, n int, label, value string) {
	var count uint64
	for i, here := range buckets {
		count += here
		if end := limit(i); end > 0 && i%n == n-1 {
			b.value(name+"_bucket", float64(count), label, value, "le", strconv.FormatFloat(end.Seconds(), 'g', -1, 64))
		}
	}
	b.value(name+"_bucket", float64(count), label, value, "le", "+Inf")
	b.value(name+"_sum", sum, label, value)
	b.value(name+"_count", float64(count), label, value)
}

// waited estimates the sum of waits in seconds, with the geometric mean of each bucket.
func waited(w *history.WaitTimes) (sum float64) {
	for i, n := range w {
		end := history.WaitLimit(i)
		begin := time.Duration(0)
		if i > 0 {
			begin = history.WaitLimit(i - 1)
		}
		mean := math.Sqrt(begin.Seconds() * end.Seconds())
		switch {
		case end == 0:
			mean = begin.Seconds()
		case begin == 0:
			mean = end.Seconds() / 2
		}
		sum += float64(n) * mean
	}
	return sum
}
