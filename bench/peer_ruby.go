package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/bench/job"
)

// runnerShim is Ruby's runner, from the directory of this program.
const runnerShim = "../runners/ruby/exe/resqued-runner"

// rubyPeers are the programs other than resqued that perform jobs of Ruby classes.
func rubyPeers() []*peer {
	resque := func(name, title string, guess int, forks bool) *peer {
		return rubyPeer(&peer{name: name, title: title, guess: guess, fill: fillResque, launch: func(t *target, sp *spec) (*child, error) {
			s := &sp.Scenario
			return startRuby(t, sp, "resque", s.Processes*s.Threads, []string{"FORK_PER_JOB=" + strconv.FormatBool(forks), "QUEUE=" + s.queueOf(0)}, "ruby", "worker.rb")
		}})
	}
	return []*peer{
		rubyPeer(&peer{name: "sidekiq", title: "Sidekiq, as many threads", guess: 4000, fill: fillSidekiq, launch: func(t *target, sp *spec) (*child, error) {
			s := &sp.Scenario
			return startRuby(t, sp, "sidekiq", s.Processes, nil,
				"sidekiq", "-e", "production", "-c", strconv.Itoa(s.Threads), "-q", s.queueOf(0), "-r", "app.rb")
		}}),
		resque("resque-forking", "Resque, as many workers", 200, true),
		resque("resque", "Resque without forks, as many workers", 2000, false),
	}
}

func rubyPeer(p *peer) *peer {
	p.skip = func(s *scenario) string {
		switch {
		case !s.Runner:
			return "performs Ruby classes only"
		case s.Kind != kindQueue || s.RunnerJobs > 0 || s.RunnerThreads > 0 || s.Delay > 0 && p.name != "sidekiq":
			return "is measured once"
		}
		gems := s.gems()
		if p.name == "sidekiq" {
			gems = s.gemsOf("sidekiq")
		}
		return missing(gems)
	}
	return p
}

// gemsOf returns the gems that the application loads if jobs are enqueued by one of them.
func (s *scenario) gemsOf(name string) []string {
	if s.App == "active_job" {
		return []string{name, "active_job"}
	}
	return []string{name}
}

func (s *scenario) gems() []string {
	if s.App == "" {
		return nil
	}
	return s.gemsOf("resque")
}

func missing(gems []string) string {
	for _, name := range gems {
		cmd := exec.Command("ruby", "-r", name, "-e", "")
		cmd.Env = rubyEnv()
		if cmd.Run() != nil {
			return "needs Ruby with the gem " + name
		}
	}
	return ""
}

// rubyEnv returns the environment of Ruby, including the path of the gems.
func rubyEnv() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	for _, name := range []string{"RUBYLIB", "GEM_HOME", "GEM_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// startRuby starts some processes with a command in the directory ruby, as one child. Their
// application loads a gem, and Active Job if the scenario has it.
func startRuby(t *target, sp *spec, app string, processes int, env []string, argv ...string) (*child, error) {
	dir, err := filepath.Abs("ruby")
	if err != nil {
		return nil, err
	}
	argv[len(argv)-1] = filepath.Join(dir, argv[len(argv)-1])
	script := strings.Repeat(`"$@" & `, processes) + "wait"
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, argv...)...)
	cmd.Dir, cmd.Env = t.dir, append(append(rubyEnv(), env...), "REDIS_URL=redis://"+sp.Redis+"/0", "HOME="+t.dir,
		"APP="+strings.Join(sp.Scenario.gemsOf(app), ","))
	return start(cmd)
}

func fillSidekiq(ctx context.Context, t *target, s *scenario, n int) error {
	if err := t.redis.client.SAdd(ctx, "queues", s.queueOf(0)).Err(); err != nil {
		return err
	}
	now := float64(time.Now().UnixMilli()) / 1000
	return t.redis.push(ctx, "queue:"+s.queueOf(0), true, n, func(i int) []byte {
		fields := map[string]any{
			"class": job.Class, "args": []any{i, s.text()}, "jid": fmt.Sprintf("%024x", i), "retry": true, "queue": s.queueOf(0),
			"created_at": now, "enqueued_at": now,
		}
		if s.App == "active_job" {
			fields["class"], fields["wrapped"] = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", activeJob
			fields["args"] = []any{serialized(i, s)}
		}
		text, err := json.Marshal(fields)
		if err != nil {
			panic(err) // plain data
		}
		return text
	})
}

const activeJob = job.Class + "Job"

func serialized(n int, s *scenario) map[string]any {
	return map[string]any{
		"job_class": activeJob, "job_id": fmt.Sprintf("%08x-0000-4000-8000-000000000000", n), "provider_job_id": nil, "queue_name": s.queueOf(0), "priority": nil,
		"arguments": []any{n, s.text()}, "executions": 0, "exception_executions": map[string]any{}, "locale": "en", "timezone": nil,
		"enqueued_at": time.Now().UTC().Format(time.RFC3339),
	}
}

// runnerSection returns the part of a configuration that makes Ruby perform the jobs.
func runnerSection(sp *spec) (string, error) {
	s := &sp.Scenario
	shim, err := filepath.Abs(runnerShim)
	if err != nil {
		return "", err
	}
	app, err := filepath.Abs("ruby/app.rb")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("runners:\n  app: {command: [ruby, %q, %q], concurrency: %d, jobs_per_runner: %d, env: {REDIS_URL: %q, APP: %q}}\nhandlers:\n  \"*\": {runner: app}\n",
		shim, app, max(s.RunnerThreads, 1), s.RunnerJobs, "redis://"+sp.Redis+"/0", strings.Join(s.gems(), ",")), nil
}

// drainQueue measures how fast jobs are taken, by the length of the queue since the first ones
// were taken. No other count exists for all peers. The jobs in hand at the end are few compared
// to n.
func (m *measurement) drainQueue(ctx context.Context) error {
	// Peers that start quickly must not gain from jobs done while others boot.
	const head = 1500 * time.Millisecond
	n := int(float64(m.jobs()) * (1 + head.Seconds()/m.b.o.window.Seconds()))
	if err := m.p.fill(ctx, m.t, m.s, n); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	m.sp.Jobs = n
	if err := m.launch(roleWorker); err != nil {
		return err
	}
	key := "queue:" + m.s.queueOf(0)
	if m.p.name != "sidekiq" {
		key = resqueNamespace + ":" + key
	}
	length := func() int { return int(m.t.redis.client.LLen(ctx, key).Val()) }
	if err := m.until(ctx, "before the first job began", wait, func() bool { return length() < n }); err != nil {
		return err
	}
	pause(head)
	if more := int(float64(n-length())/head.Seconds()*2*m.b.o.window.Seconds()) - length(); more > 0 {
		if err := m.p.fill(ctx, m.t, m.s, more); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		n += more
	}
	from, err := m.instant(ctx)
	if err != nil {
		return err
	}
	began, left := time.Now(), length()
	end, rest := began, left
	patience := 5 * m.b.o.window
	err = m.until(ctx, "before the last job was taken", 2*wait, func() bool {
		end, rest = time.Now(), length()
		return rest == 0 || end.Sub(began) > max(patience/2, time.Second)
	})
	if err != nil {
		return err
	}
	to, err := m.instant(ctx)
	if err != nil {
		return err
	}
	if m.shared.Last.Store(int64(job.Monotonic())); m.b.o.profile {
		pause(100 * time.Millisecond) // until the profiles are written
	}
	m.remember("VmHWM")
	m.r.Jobs, m.r.Seconds = left-rest, end.Sub(began).Seconds()
	m.r.Rate = float64(m.r.Jobs) / m.r.Seconds
	from.workersDone, from.serverDone, to.workersDone, to.serverDone = 0, 0, float64(m.r.Jobs), float64(m.r.Jobs)
	m.costs(from, to, 0)
	m.learn()
	if m.p.name == "resqued" && rest == 0 {
		return checkResqued(ctx, m.t, n)
	}
	return nil
}
