package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

// pageRoutes are the pages of the dashboard. Irreversible changes are confirmed on a page of their
// own, so that everything works without JavaScript.
func pageRoutes() []route {
	page := func(path, doc string, make func(s *Server, r *http.Request) (pages.Page, error)) route {
		return route{Method: http.MethodGet, Path: path, Role: Viewer, Doc: doc, raw: func(s *Server, w http.ResponseWriter, r *http.Request) error {
			p, err := make(s, r)
			if err != nil {
				return err
			}
			return s.page(w, r, http.StatusOK, p)
		}}
	}
	form := func(path, doc string, do func(s *Server, r *http.Request) (answer, error)) route {
		return route{Method: http.MethodPost, Path: path, Role: Operator, Doc: doc, raw: func(s *Server, w http.ResponseWriter, r *http.Request) error {
			if err := r.ParseForm(); err != nil {
				if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
					return large
				}
				return badRequest("the form cannot be read: %s", filter.Mask(err.Error()))
			}
			a, err := do(s, r)
			switch {
			case err != nil:
				return err
			case a.confirm != nil:
				return s.page(w, r, http.StatusOK, a.confirm)
			}
			s.sampler.outdate()
			http.Redirect(w, r, a.to, http.StatusSeeOther)
			return nil
		}}
	}
	return []route{
		{Method: http.MethodGet, Path: pages.AssetPath + "{file}", Role: Viewer, Doc: "styles, script and pictures of the pages", raw: (*Server).asset},

		page("/{$}", "how it is as a whole", (*Server).overviewPage),
		page("/queues", "all queues", (*Server).queuesPage),
		page("/queues/{queue}", "one queue with its jobs", (*Server).queuePage),
		page("/jobs", "running jobs", (*Server).jobsPage),
		page("/jobs/{id}", "one running job", (*Server).jobPage),
		page("/failed", "failures in groups or one by one", (*Server).failedPage),
		page("/failed/{id}", "one failure", (*Server).failurePage),
		page("/workers", "who works", (*Server).workersPage),
		page("/workers/{worker}", "one master", (*Server).workerPage),
		page("/locks", "locks, and who waits for them", (*Server).locksPage),
		page("/locks/{key}", "one lock", (*Server).lockPage),
		page("/limits", "limits of running jobs and rates", (*Server).limitsPage),
		page("/longjobs", "long jobs", (*Server).longJobsPage),
		page("/longjobs/{uuid}", "one run of a long job", (*Server).longJobPage),
		page("/schedule", "what runs when", (*Server).schedulePage),
		page("/classes", "what each class of jobs costs", (*Server).classesPage),
		page("/classes/{class}", "one class", (*Server).classPage),
		page("/events", "what happened, and who did what", (*Server).eventsPage),
		page("/redis", "the server, and what the checks found", (*Server).redisPage),
		page("/operations/{id}", "an act on many records", (*Server).operationPage),

		form("/queues/{queue}", "pause, resume, purge or repair a queue", (*Server).actOnQueue),
		form("/jobs", "kill the jobs that are picked", (*Server).actOnJobs),
		form("/jobs/{id}", "kill one job", (*Server).actOnJobs),
		form("/failed", "retry or remove failures", (*Server).actOnFailures),
		form("/failed/{id}", "retry or remove one failure", (*Server).actOnFailures),
		form("/workers/{worker}", "pause, resume, drain or recycle a master", (*Server).actOnWorker),
		form("/locks/{key}", "release a lock", (*Server).actOnLock),
		form("/longjobs/{uuid}", "requeue, pause, resume or cancel a long job", (*Server).actOnLongJob),
		form("/schedule", "run or remove delayed jobs", (*Server).actOnDelayed),
		form("/schedule/{name}", "run a schedule now", (*Server).actOnSchedule),
		form("/operations/{id}", "stop an act on many records", (*Server).actOnOperation),
	}
}

type answer struct {
	confirm *pages.Confirm
	to      string
}

const refresh = sampleEvery

func (s *Server) frame(r *http.Request, name, title string) pages.Frame {
	visitor := visitorOf(r)
	return pages.Frame{
		View: name, Title: title, Prefix: s.o.PathPrefix, Namespace: s.o.Namespace, Command: s.o.Command, Redis: s.o.Store.Where(), User: visitor.Name, Operator: visitor.Role >= Operator,
		Now: time.Now(), Refresh: refresh, Notice: noticeOf(r.URL.Query()), Store: s.o.StoreName, Stores: s.o.storeNames, Top: s.o.top,
		Explain: func(err error) string { return asError(err).Message },
	}
}

// sampled returns the last sample for pages, and notes on the frame if Redis is away. The first
// visitor after a pause gets a new one, unless that would read Redis too often.
func (s *Server) sampled(ctx context.Context, f *pages.Frame) *pages.Sampled {
	v := s.sampler.sample(ctx)
	if !v.late && time.Since(v.At) > max(2*sampleEvery, v.rest(modest)) {
		v = s.sampler.shown(ctx, s.sampler.take())
	}
	return s.asSampled(ctx, v, f)
}

// resampled returns a newer sample, at a limited rate because of guessed names.
func (s *Server) resampled(ctx context.Context, f *pages.Frame) *pages.Sampled {
	v := s.sampler.sample(ctx)
	if !v.late && time.Since(v.At) > max(sampleEvery/4, v.rest(modest/5)) {
		v = s.sampler.shown(ctx, s.sampler.take())
	}
	return s.asSampled(ctx, v, f)
}

// outdate marks older samples as outdated, so that the next request sees a change.
func (s *sampler) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated = time.Now()
}

// changedSince reports whether something was changed here since a time.
func (s *sampler) changedSince(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outdated.After(at)
}

// current reports whether a sample was begun after the last change. s.mu must be held.
func (s *sampler) current(v Sample) bool { return v.At.Add(-v.Took).After(s.outdated) }

func (s *Server) asSampled(ctx context.Context, v Sample, f *pages.Frame) *pages.Sampled {
	if v.Err != nil {
		f.Problem = asError(v.Err).Message
		patienceOf(ctx).gone = true // the sampler asks Redis; pages need not
	}
	v.Trends = s.sampler.trends
	return &v.Sampled
}

// page writes a page, or only its content for an update.
func (s *Server) page(w http.ResponseWriter, r *http.Request, status int, p pages.Page) error {
	draw := pages.Write
	if r.Header.Get("Fragment") != "" {
		draw = pages.WriteFragment
	}
	var b bytes.Buffer
	if err := draw(&b, p); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Fragment, Accept-Encoding")
	sum := sha256.Sum256(b.Bytes())
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	h.Set("ETag", tag)
	if status == http.StatusOK && r.Method == http.MethodGet && strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/") == tag { // compressing proxies make it a weak one
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	write(w, r, status, b.Bytes())
	return nil
}

// asset answers with a file of the pages. Its name has a digest, so it is cached for ever.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := pages.FindAsset(r.PathValue("file"))
	if !ok {
		return notFoundPath(r.URL.Path)
	}
	h := w.Header()
	h.Set("Content-Type", a.Type)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.Body
	if accepts(r, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.Gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return nil
}

// forPeople reports whether an answer is for a browser window rather than a program.
func (s *Server) forPeople(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, s.o.PathPrefix+api)
}

func (s *Server) failPage(w http.ResponseWriter, r *http.Request, e *Error) {
	f := s.frame(r, "", "That did not work")
	f.Refresh, f.Notice = 0, nil
	if e.Status == http.StatusNotFound {
		f.Title = "Not found"
	}
	m := &pages.Message{Frame: f, Text: e.Message, Hint: e.Hint, Links: []pages.Link{{Text: "Overview", URL: f.Path("/")}}}
	if err := s.page(w, r, e.Status, m); err != nil {
		http.Error(w, e.Message, e.Status)
	}
}

// notices are the messages after a change; % is a number.
var notices = map[string]string{
	"paused": "The queue waits, on all machines.", "resumed": "The queue is no longer paused.", "purged": "% jobs were removed.",
	"repaired": "The keys of the queue match again.", "matched": "The keys of the queue matched already.",
	"killed": "% jobs were told to stop. One that does not costs its process.", "retried": "% failures were retried.", "removed": "% were removed.", "moved": "% jobs were moved.",
	"ordered": "The daemon was told; it follows within seconds.", "released": "The lock was released.",
	"halted": "The long job does nothing more until it is resumed.", "cancelled": "The long job was told to stop.", "requeued": "The long job runs again.", "enqueued": "% jobs were enqueued.",
}

// after returns an address with the notice of a change to n of all things.
func after(to, what string, n, all int) string {
	sign := "?"
	if strings.Contains(to, "?") {
		sign = "&"
	}
	return to + sign + url.Values{"did": {what}, "n": {strconv.Itoa(n)}, "of": {strconv.Itoa(all)}}.Encode()
}

// noticeOf reads what after has written, but no text: anyone may have made the address.
func noticeOf(q url.Values) *pages.Notice {
	said, ok := notices[q.Get("did")]
	if !ok {
		return nil
	}
	n, _ := strconv.Atoi(q.Get("n"))
	all, _ := strconv.Atoi(q.Get("of"))
	said = strings.Replace(said, "% jobs were", view.Plural(n, "job")+was(n), 1)
	said = strings.Replace(said, "% failures were", view.Plural(n, "failure")+was(n), 1)
	said = strings.Replace(said, "% were", view.Grouped(int64(n))+was(n), 1)
	if n < all {
		said += " " + view.Grouped(int64(all-n)) + " of " + view.Grouped(int64(all)) + " could not be: others were faster, or it is not possible for them."
	}
	return &pages.Notice{Text: said, Failed: n < all}
}

func was(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}
