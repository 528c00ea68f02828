package top

import (
	"fmt"
	"strings"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// pause pauses or resumes the selected queue.
func (m *Model) pause() Command {
	r := m.selected()
	if m.pane != queuesPane {
		m.Say("p pauses a queue: see 1", true)
		return Command{}
	}
	if r == nil {
		return Command{}
	}
	return Command{Kind: Pause, Queue: r.queue.Queue, On: r.queue.State != view.QueuePaused}
}

// kill asks whether the selected job is to be killed.
func (m *Model) kill() {
	r := m.selected()
	switch {
	case m.pane != jobsPane:
		m.Say("K kills a job: see 3", true)
		return
	case r == nil:
		return
	case r.job.State == view.JobForeign:
		m.Say(fmt.Sprintf("%s runs in a worker that is not resqued's: only its own program can kill it", m.jobName(r.job)), true)
		return
	}
	beside := 0
	for _, j := range m.snap.Jobs {
		if j.State != view.JobForeign && j.Run.Proc == r.job.Run.Proc && j.Run != r.job.Run {
			beside++
		}
	}
	cost := "It is alone in its process."
	if beside > 0 {
		cost = fmt.Sprintf("The %s beside it may finish first, for resque_term_timeout; what has not finished by then runs again.", view.Plural(beside, "job"))
	}
	m.question = fmt.Sprintf("Kill %s? y/n  It is told to stop and recorded as failed. If it still runs after %s its process has to go. %s",
		m.jobName(r.job), m.KillAfter, cost)
	m.asked = Command{Kind: Kill, Job: r.job}
}

// answer takes the key that answers a question: only y means yes.
func (m *Model) answer(k Key) Command {
	asked := m.asked
	m.question, m.asked = "", Command{}
	if k == "y" || k == "Y" {
		return asked
	}
	m.Say("nothing was killed", false)
	return Command{}
}

// jobName names a job in a sentence.
func (m *Model) jobName(j *view.Job) string {
	args := strings.TrimSuffix(strings.TrimPrefix(string(j.Args), "["), "]")
	return fmt.Sprintf("%s[%s] (%s)", wire.Printable(j.Class, view.MaxName), wire.Printable(args, 40), wire.Printable(j.Short, view.MaxName))
}
