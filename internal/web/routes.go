package web

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/wire"
)

type route struct {
	Method, Path string
	// Role is the required role; 0 = no login, see probes.
	Role Role
	Doc  string
	// api returns an answer for JSON; raw answers itself. One of them is set.
	api func(s *Server, r *http.Request) (any, error)
	raw func(s *Server, w http.ResponseWriter, r *http.Request) error
}

// readTime limits a request's reads. The script of a page waits for 5 s.
const readTime = 4 * time.Second

const api = "/api/v1"

// act returns the route of a change.
func act[T any](path, doc string, do func(s *Server, r *http.Request) (T, error)) route {
	return route{Method: http.MethodPost, Path: api + path, Role: Operator, Doc: doc, api: answers(do)}
}

func answers[T any](do func(s *Server, r *http.Request) (T, error)) func(s *Server, r *http.Request) (any, error) {
	return func(s *Server, r *http.Request) (any, error) { return do(s, r) }
}

func routes() []route {
	read := func(path, doc string, do func(s *Server, r *http.Request) (any, error)) route {
		return route{Method: http.MethodGet, Path: api + path, Role: Viewer, Doc: doc, api: do}
	}
	return append([]route{
		{Method: http.MethodGet, Path: "/metrics", Role: Viewer, Doc: "metrics of the whole fleet for Prometheus", raw: (*Server).metrics},

		read("/live", "totals now, and those since a time", (*Server).live),
		read("/overview", "totals and rates", (*Server).overview),
		read("/attention", "what needs attention", (*Server).attention),
		read("/doctor", "all that doctor checks", (*Server).doctor),
		read("/scale", "how many jobs more daemons could help with", (*Server).scale),
		read("/queues", "all queues", (*Server).queues),
		read("/queues/{queue}", "one queue, and who works it", (*Server).queue),
		read("/queues/{queue}/jobs", "jobs that wait in a queue", (*Server).queueJobs),
		read("/jobs", "running jobs", (*Server).jobs),
		read("/jobs/{id}", "one running job", (*Server).job),
		read("/failed", "failures, one by one", (*Server).failed),
		read("/failed/groups", "failures by class, exception and message", (*Server).failedGroups),
		read("/failed/{id}", "one failure with its backtrace", (*Server).failure),
		read("/parked", "ends of jobs that could not be written", (*Server).parked),
		read("/workers", "masters with their processes, and other workers", (*Server).workers),
		read("/workers/{worker}", "one of them", (*Server).worker),
		read("/locks", "locks that are held", (*Server).locks),
		read("/locks/waiting", "queues whose jobs wait for locks", (*Server).locksWaiting),
		read("/locks/unique", "unique queues", (*Server).locksUnique),
		read("/locks/{key}", "one lock, and who waits for it", (*Server).lock),
		read("/limits", "limits, with how many jobs run and wait for each key", (*Server).limitList),
		read("/longjobs", "runs of long jobs", (*Server).longJobs),
		read("/longjobs/{uuid}", "one run", (*Server).longJob),
		read("/schedule", "recurring jobs", (*Server).schedule),
		read("/schedule/delayed", "jobs that wait for their time", (*Server).delayed),
		read("/redis", "the server", (*Server).redis),
		read("/classes", "what each class of jobs costs", (*Server).classList),
		read("/classes/{class}", "one class with its points", (*Server).class),
		read("/history", "how many jobs ran, how long, and how long they had waited", (*Server).history),
		read("/queues/{queue}/levels", "how long a queue was, minute by minute", (*Server).levels),
		read("/processes/{process}", "one worker process", (*Server).process),
		read("/operations/{id}", "an act on many records", (*Server).operation),
		read("/events", "what happened, and who did what", (*Server).eventList),
		{Method: http.MethodGet, Path: api + "/openapi.yaml", Role: Viewer, Doc: "the description of this API", raw: (*Server).openapi},
		{Method: http.MethodGet, Path: api + "/openapi.json", Role: Viewer, Doc: "the same as JSON", raw: (*Server).openapiJSON},

		act("/queues/{queue}/pause", "have the jobs of a queue wait, on all machines", (*Server).pauseQueue),
		act("/queues/{queue}/resume", "resume them", (*Server).resumeQueue),
		act("/queues/{queue}/purge", "remove the jobs that wait in a queue", (*Server).purgeQueue),
		act("/queues/{queue}/repair", "make the keys of a unique queue match its jobs", (*Server).repairQueue),
		{Method: http.MethodDelete, Path: api + "/queues/{queue}", Role: Operator, Doc: "remove a queue and the jobs that wait in it", api: answers((*Server).removeQueue)},
		act("/pause", "have all queues wait", (*Server).pauseAll),
		act("/resume", "resume them", (*Server).resumeAll),
		act("/jobs", "enqueue a job", (*Server).enqueue),
		act("/jobs/{id}/kill", "stop a running job", (*Server).killJob),
		act("/queues/{queue}/jobs/remove", "remove jobs that wait in a queue", (*Server).removeWaiting),
		act("/queues/{queue}/jobs/move", "move jobs that wait in a queue to another one", (*Server).moveWaiting),
		act("/failed/retry", "push failed jobs again", (*Server).retryFailed),
		act("/failed/remove", "remove failures", (*Server).removeFailed),
		act("/locks/{key}/release", "release a lock whose holder is gone", (*Server).releaseLock),
		act("/limits/{limit}/override", "override a limit, or a limit:key, for a time", (*Server).setLimit),
		act("/limits/{limit}/reset", "end an override", (*Server).resetLimit),
		act("/longjobs/{uuid}/requeue", "run a long job again", editLong("requeue")),
		act("/longjobs/{uuid}/pause", "have a long job do nothing more for now", editLong("pause")),
		act("/longjobs/{uuid}/resume", "resume it", editLong("resume")),
		act("/longjobs/{uuid}/cancel", "stop a long job", editLong("cancel")),
		act("/schedule/{name}/run", "enqueue the job of a schedule now", (*Server).runSchedule),
		act("/schedule/delayed/run", "enqueue delayed jobs now", (*Server).runDelayed),
		act("/schedule/delayed/remove", "remove delayed jobs", (*Server).removeDelayed),
		act("/workers/{worker}/{order}", "pause, resume, drain or recycle a daemon", (*Server).order),
		{Method: http.MethodDelete, Path: api + "/operations/{id}", Role: Operator, Doc: "stop an act on many records", api: answers((*Server).stopOperation)},
	}, pageRoutes()...)
}

// serve returns the handler of a route. Only here roles are checked.
func (s *Server) serve(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if visitorOf(req).Role < r.Role {
			s.fail(w, req, &Error{
				Status: http.StatusForbidden, Code: "forbidden", Message: "only an operator may do that",
				Hint: "docs/dashboard.md says who is one.",
			})
			return
		}
		if r.Method == http.MethodGet { // changes continue
			ctx, cancel := context.WithTimeout(req.Context(), readTime)
			defer cancel()
			req = req.WithContext(withPatience(ctx))
		}
		if r.raw != nil {
			if err := r.raw(s, w, req); err != nil {
				s.fail(w, req, err)
			}
			return
		}
		if err := checkParameters(r, req); err != nil {
			s.fail(w, req, err)
			return
		}
		body, err := r.api(s, req)
		if err != nil {
			s.fail(w, req, err)
			return
		}
		s.send(w, req, http.StatusOK, body)
	})
}

//go:embed openapi.yaml
var description []byte

// descriptionJSON is the same; TestDescription of test/dashboard writes it with -update.
//
//go:embed openapi.json
var descriptionJSON []byte

// parameters are those that an address of the API may have, by method and path, as it is described.
var parameters = sync.OnceValue(func() map[string][]string {
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []map[string]any }
	}
	all := map[string][]string{}
	if json.Unmarshal(descriptionJSON, &doc) != nil {
		return all
	}
	for path, methods := range doc.Paths {
		for method, described := range methods {
			known := []string{}
			for _, p := range described.Parameters {
				if name, ok := p["name"].(string); ok && p["in"] == "path" {
					known = append(known, "name") // of what a path cannot hold; see named
				} else if ok {
					known = append(known, name)
				} else if ref, ok := p["$ref"].(string); ok {
					known = append(known, ref[strings.LastIndexByte(ref, '/')+1:])
				}
			}
			all[strings.ToUpper(method)+" "+api+path] = known
		}
	}
	return all
})

// checkParameters refuses what the route does not know: a list without a mistyped condition would be another.
func checkParameters(r route, req *http.Request) error {
	known := parameters()[r.Method+" "+r.Path]
	if err := checkQuery(req); err != nil {
		return err
	}
	for name := range req.URL.Query() {
		if unread := name == "name" && !strings.Contains(req.URL.Path+"/", "/-/"); unread || !slices.Contains(known, name) {
			return badRequest("%s is not a parameter here; there are %s", quoted(name), cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	return nil
}

// checkQuery refuses parameters that cannot be read, which URL.Query leaves out.
func checkQuery(r *http.Request) error {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return badRequest("the address cannot be read: %s; write ; as %%3B and %% as %%25", wire.Printable(err.Error(), maxQuoted))
	}
	return nil
}

func (s *Server) openapiJSON(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	write(w, r, http.StatusOK, descriptionJSON)
	return nil
}

func (s *Server) openapi(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	write(w, r, http.StatusOK, description)
	return nil
}
