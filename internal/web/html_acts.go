package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/internal/wire"
)

const (
	maxPicked = 1000
	// maxCommand limits a command on a page.
	maxCommand = 400
	// countTime limits the counting of failures before the question about all of them.
	countTime = 10 * time.Second
)

// sure reports whether the question was answered.
func sure(r *http.Request) bool { return r.PostForm.Get("sure") == "1" }

// unknownAct is the answer to a form that no page of this version has.
func unknownAct(r *http.Request) error {
	return badRequest("act is %s, which this page does not have", quoted(r.PostForm.Get("act")))
}

// command returns the equivalent shell command, "" if it is too long to copy.
func (s *Server) command(verb string, names ...string) string {
	words := []string{s.o.Command, verb}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		words = append(words, "--") // or they would be flags
	}
	for _, name := range names {
		words = append(words, view.Shell(name))
	}
	text := strings.Join(words, " ")
	if len(text) > maxCommand {
		return ""
	}
	return text
}

// ask returns a question that keeps the form's fields.
func (s *Server) ask(r *http.Request, viewName, question, button, back, command string, details []string, fields ...pages.Field) answer {
	f := s.frame(r, viewName, question)
	f.Refresh, f.Notice = 0, nil
	fields = append(fields, pages.Field{Name: "act", Value: r.PostForm.Get("act")})
	for _, id := range r.PostForm["id"] {
		fields = append(fields, pages.Field{Name: "id", Value: id})
	}
	return answer{confirm: &pages.Confirm{
		Frame: f, Question: question, Details: details, Action: pages.Address(r.URL.RequestURI()), Fields: fields, Button: button, Back: pages.Address(back), Command: command,
	}}
}

// at returns the address of a page.
func (s *Server) at(path string, name ...string) string {
	f := pages.Frame{Prefix: s.o.PathPrefix}
	return string(f.Path(path, name...))
}

func (s *Server) actOnQueue(r *http.Request) (answer, error) {
	name := named(r, "queue")
	at := s.at("/queues", name)
	switch r.PostForm.Get("act") {
	case "pause":
		_, err := s.pauseQueue(r)
		return answer{to: after(at, "paused", 1, 1)}, err
	case "resume":
		_, err := s.resumeQueue(r)
		return answer{to: after(at, "resumed", 1, 1)}, err
	case "repair":
		answered, err := s.repairQueue(r)
		return answer{to: after(s.at("/locks"), answered.Outcome, 1, 1)}, err
	case "remove-all", "move-all":
		return s.actOnWaiting(r, name)
	case "purge":
		queues, err := view.Queues(r.Context(), s.o.Store, name)
		if err != nil {
			return answer{}, err
		}
		size := queues[0].Waiting()
		said := r.PostForm.Get("expect")
		if now := fmt.Sprint(size); !sure(r) || said != now {
			details := []string{"They cannot be brought back. Jobs of the queue that run go on."}
			if sure(r) {
				details = append([]string{"Their number has changed since you were asked."}, details...)
			}
			return s.ask(r, "queues", fmt.Sprintf("Purge %s of %s?", view.Plural(int(size), "job"), wire.Printable(name, view.MaxName)),
				"Purge "+view.Plural(int(size), "job"), at, s.command("queues purge", name), details, pages.Field{Name: "expect", Value: now}), nil
		}
		answered, err := s.purgeQueue(r)
		n := 0
		if answered.Count != nil {
			n = int(*answered.Count)
		}
		return answer{to: after(at, "purged", n, n)}, err
	}
	return answer{}, unknownAct(r)
}

// picked returns what a form names: by its path, or by ticks.
func picked(r *http.Request, parameter string) ([]string, error) {
	if r.PathValue(parameter) != "" {
		return []string{named(r, parameter)}, nil
	}
	ids := r.PostForm["id"]
	switch {
	case len(ids) == 0:
		return nil, &Error{Status: http.StatusBadRequest, Code: "usage", Message: "nothing is picked", Hint: "Go back and tick what is meant."}
	case slices.Contains(ids, ""):
		return nil, badRequest("an id is empty")
	case len(ids) > maxPicked:
		return nil, badRequest("%d are picked; %d are allowed at a time", len(ids), maxPicked)
	}
	return ids, nil
}

func (s *Server) actOnJobs(r *http.Request) (answer, error) {
	act, whole := strings.CutSuffix(r.PostForm.Get("act"), "-all")
	if act != "kill" {
		return answer{}, unknownAct(r)
	}
	all, err := view.Jobs(r.Context(), s.o.Store)
	if err != nil {
		return answer{}, err
	}
	if whole { // the question is about these, not about others that come later
		q := &query{Request: r}
		c := q.conditions(filter.Running)
		if q.err != nil {
			return answer{}, q.err
		}
		fitting, _ := view.Running(all, c.Matcher, 0)
		r.PostForm["id"], r.PostForm["act"] = nil, []string{act}
		for _, j := range fitting {
			r.PostForm.Add("id", j.Name)
		}
	}
	names, err := picked(r, "id")
	if err != nil {
		return answer{}, err
	}
	var jobs []*view.Job
	for _, name := range names {
		// A job that has ended needs no kill.
		if found, err := view.FindJobs(all, []string{name}); err == nil && found[0].State != view.JobForeign {
			jobs = append(jobs, found[0])
		} else if len(names) == 1 && err != nil {
			return answer{}, err
		}
	}
	if !sure(r) {
		var details, known []string
		for _, j := range jobs {
			known = append(known, j.Name)
		}
		processes := map[string]bool{}
		for i, j := range jobs {
			processes[j.Run.Proc] = true
			if i < 10 {
				details = append(details, fmt.Sprintf("%s %s of %s, running for %s", wire.Printable(j.Class, view.MaxName), wire.Printable(string(j.Args), 80),
					wire.Printable(j.Queue, view.MaxName), view.Age(time.Duration(j.AgeS)*time.Second)))
			}
		}
		if len(jobs) > 10 {
			details = append(details, fmt.Sprintf("and %d more", len(jobs)-10))
		}
		var siblings []string
		for _, j := range all {
			if processes[j.Run.Proc] && !slices.Contains(known, j.Name) {
				siblings = append(siblings, j.IfDead())
			}
		}
		details = append(details, fmt.Sprintf("Each is told to stop and recorded as failed. One that still runs after %s costs its process; %s in the same processes, which may finish first.",
			view.Left(store.KillGrace), thereRun(len(siblings))))
		if len(siblings) > 0 {
			if text := view.IfTheyDie(siblings); text != "" {
				details = append(details, "Of those that have not finished by then, "+text+".")
			}
		}
		command := ""
		if len(known) > 0 {
			command = s.command("jobs kill", known...)
		}
		return s.ask(r, "jobs", fmt.Sprintf("Kill %s?", view.Plural(len(jobs), "running job")), "Kill "+view.Plural(len(jobs), "job"), s.at("/jobs"), command, details), nil
	}
	told := 0
	defer func() { s.notedKill(r, jobs, int64(told)) }()
	for _, j := range jobs {
		said, err := s.kill(r, j)
		if err != nil {
			return answer{}, err
		}
		if said != store.KillGone {
			told++
		}
	}
	return answer{to: after(s.at("/jobs"), "killed", told, len(names))}, nil
}

func thereRun(n int) string {
	if n == 1 {
		return "1 other job runs"
	}
	return view.Grouped(int64(n)) + " other jobs run"
}

func (s *Server) actOnFailures(r *http.Request) (answer, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Failures)
	if q.err != nil {
		return answer{}, q.err
	}
	back := string((&pages.Failed{Frame: pages.Frame{Prefix: s.o.PathPrefix}, Filter: c.Filter}).Flatly())
	act, whole := strings.CutSuffix(r.PostForm.Get("act"), "-all")
	if act != "retry" && act != "remove" || whole && r.PathValue("id") != "" {
		return answer{}, unknownAct(r)
	}
	what, verb := "retried", "failed retry"
	if act == "remove" {
		what, verb = "removed", "failed rm"
	}
	if whole {
		return s.actOnAllFailures(r, c, what, verb, back)
	}
	ids, err := picked(r, "id")
	if err == nil {
		err = checkFailureIDs(ids)
	}
	if err != nil {
		return answer{}, err
	}
	if act == "remove" && !sure(r) {
		return s.ask(r, "failed", fmt.Sprintf("Remove %s?", view.Plural(len(ids), "failure")), "Remove "+view.Plural(len(ids), "failure"), back, s.command(verb, ids...),
			[]string{"They cannot be brought back."}), nil
	}
	change, err := s.failedChange(r, what, conditions{jobs: client.Filter{IDs: ids}})
	if err == nil {
		err = change.acting()
	}
	if err != nil {
		return answer{}, err
	}
	n, err := change.do(context.WithoutCancel(r.Context()), nil)
	return answer{to: after(back, what, n, len(ids))}, partly(err, n)
}

// actOnAllFailures retries or removes all failures that fit, after a question with their number.
func (s *Server) actOnAllFailures(r *http.Request, c conditions, what, verb, back string) (answer, error) {
	again := pages.Field{Name: "again", Value: r.PostForm.Get("again")}
	if again.Value != "" && what == "retried" && c.jobs.Retried == "" {
		c.jobs.Retried = "any"
	}
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	change, err := s.failedChange(r.WithContext(ctx), what, c)
	if err != nil {
		return answer{}, err
	}
	details, command := c.about(), []string{}
	switch {
	case what == "removed":
		details = append(details, "They cannot be brought back.")
	case c.jobs.Retried == "":
		details = append(details, "Those that were retried before are left out.")
	case c.Words["retried"] == nil:
		command = append(command, "--retried=any")
	}
	return s.actOnAll(r, "failed", "failure", back, s.commandFor(verb, c, command...), details, change, again)
}

// actOnAll makes a change after a question with the number of things. It runs in the background:
// there may be a million.
func (s *Server) actOnAll(r *http.Request, viewName, thing, back, command string, details []string, c change, fields ...pages.Field) (answer, error) {
	if c.matched == 0 {
		return answer{to: after(back, c.what, 0, 0)}, nil
	}
	verb := map[string]string{"retried": "Retry ", "removed": "Remove ", "moved": "Move ", "enqueued": "Run "}[c.what]
	said, now := verb+view.Plural(c.matched, thing), fmt.Sprint(c.matched)
	if !sure(r) || r.PostForm.Get("expect") != now {
		if sure(r) {
			details = append([]string{"Their number has changed since you were asked."}, details...)
		}
		return s.ask(r, viewName, said+"?", said, back, command, details, append(fields, pages.Field{Name: "expect", Value: now})...), nil
	}
	if err := c.acting(); err != nil {
		return answer{}, err
	}
	id, err := s.operations.start(said, int64(c.matched), back, c.do)
	return answer{to: s.at("/operations", id)}, err
}

func (s *Server) actOnWorker(r *http.Request) (answer, error) {
	name, order := named(r, "worker"), r.PostForm.Get("act")
	if order == string(store.OrderDrain) && !sure(r) {
		return s.ask(r, "workers", "Drain "+wire.Printable(name, view.MaxName)+"?", "Drain", s.at("/workers", name), s.command("workers drain", name),
			[]string{"Its jobs finish, and then the daemon ends. Whatever started it may start it again."}), nil
	}
	return answer{to: after(s.at("/workers"), "ordered", 1, 1)}, s.orderWorker(r, order, unknownAct(r))
}

func (s *Server) actOnLock(r *http.Request) (answer, error) {
	if r.PostForm.Get("act") != "release" {
		return answer{}, unknownAct(r)
	}
	key := named(r, "key")
	if !sure(r) {
		return s.ask(r, "locks", "Release "+wire.Printable(key, view.MaxName)+"?", "Release", s.at("/locks", key), s.command("locks release", key),
			[]string{"It is refused if a living job holds the lock."}), nil
	}
	_, err := s.releaseLock(r)
	return answer{to: after(s.at("/locks"), "released", 1, 1)}, err
}

func (s *Server) actOnLongJob(r *http.Request) (answer, error) {
	uuid, name := named(r, "uuid"), r.PostForm.Get("act")
	at, act := s.at("/longjobs", uuid), longActs[name]
	switch {
	case act.do == nil:
		return answer{}, unknownAct(r)
	case name == "cancel" && !sure(r):
		return s.ask(r, "longjobs", "Cancel this long job?", "Cancel it", at, s.command("longjobs cancel", uuid),
			[]string{"Its results stay. It can be run again from the beginning."}), nil
	}
	_, err := editLong(name)(s, r)
	return answer{to: after(at, act.notice, 1, 1)}, err
}

func (s *Server) actOnSchedule(r *http.Request) (answer, error) {
	if r.PostForm.Get("act") != "run" {
		return answer{}, unknownAct(r)
	}
	_, err := s.runSchedule(r)
	return answer{to: after(s.at("/schedule"), "enqueued", 1, 1)}, err
}

func (s *Server) actOnDelayed(r *http.Request) (answer, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Delayed)
	if q.err != nil {
		return answer{}, q.err
	}
	act, whole := strings.CutSuffix(r.PostForm.Get("act"), "-all")
	if act != "run" && act != "remove" {
		return answer{}, unknownAct(r)
	}
	back := string((&pages.Frame{Prefix: s.o.PathPrefix}).With("/schedule", c.Pairs()...))
	verb, details := "schedule run", c.about()
	if act == "remove" {
		verb, details = "schedule rm", append(details, "They cannot be brought back.")
	}
	if whole {
		change, err := s.delayedChange(r, act == "run", c)
		if err != nil {
			return answer{}, err
		}
		return s.actOnAll(r, "schedule", "delayed job", back, s.commandFor(verb, c), details, change)
	}
	ids, err := picked(r, "name")
	if err != nil {
		return answer{}, err
	}
	if act == "remove" && !sure(r) {
		return s.ask(r, "schedule", fmt.Sprintf("Remove %s?", view.Plural(len(ids), "delayed job")), "Remove "+view.Plural(len(ids), "job"), back, s.command(verb, ids...),
			[]string{"They cannot be brought back."}), nil
	}
	change, err := s.delayedChange(r, act == "run", conditions{jobs: client.Filter{IDs: ids}})
	if err == nil {
		err = change.acting()
	}
	if err != nil {
		return answer{}, err
	}
	n, err := change.do(context.WithoutCancel(r.Context()), nil)
	return answer{to: after(back, change.what, n, len(ids))}, partly(err, n)
}

// actOnWaiting removes or moves the jobs of a queue that fit.
func (s *Server) actOnWaiting(r *http.Request, queue string) (answer, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Waiting)
	if q.err == nil && !c.Any() {
		q.err = badRequest("all jobs of a queue are purged, or moved in a shell")
	}
	if q.err != nil {
		return answer{}, q.err
	}
	back := string((&pages.Frame{Prefix: s.o.PathPrefix}).At("/queues", queue, c.Pairs()...))
	verb, to, details := "jobs rm --queue="+view.Shell(filter.Literal(queue)), r.PostForm.Get("to"), c.about()
	if r.PostForm.Get("act") == "remove-all" {
		to, details = "", append(details, "They cannot be brought back.")
	} else {
		if err := checkTarget(queue, to); err != nil {
			return answer{}, err
		}
		verb = "jobs move --unknown --to=" + view.Shell(to) + strings.TrimPrefix(verb, "jobs rm")
		details = append(details, "They go to the tail of "+wire.Printable(to, view.MaxName)+".")
	}
	change, err := s.waitingChange(r, queue, to, false, c)
	if err != nil {
		return answer{}, err
	}
	return s.actOnAll(r, "queues", "waiting job", back, s.commandFor(verb, c), details, change, pages.Field{Name: "to", Value: to})
}
