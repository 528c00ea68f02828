package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// runnerShim is Ruby's runner, from the directory of this program.
const runnerShim = "../runners/ruby/exe/resqued-runner"

// rubyPeers are what performs the jobs of Ruby classes besides resqued.
func rubyPeers() []*peer {
	worker := func(name, title string, guess, processes int, env ...string) *peer {
		return rubyPeer(&peer{name: name, title: title, guess: guess, fill: fillResque, launch: func(t *target, sp *spec) (*child, error) {
			return startRuby(t, processes, append(env, "REDIS_URL=redis://"+sp.Redis+"/0", "QUEUE="+sp.Scenario.queueOf(0)), "ruby", "worker.rb")
		}})
	}
	sidekiq := func(name, title string, processes int) *peer {
		return rubyPeer(&peer{name: name, title: title, guess: 4000, fill: fillSidekiq, launch: func(t *target, sp *spec) (*child, error) {
			return startRuby(t, processes, []string{"REDIS_URL=redis://" + sp.Redis + "/0"},
				"sidekiq", "-e", "production", "-c", "10", "-q", sp.Scenario.queueOf(0), "-r", "sidekiq.rb")
		}})
	}
	return []*peer{
		sidekiq("sidekiq-1", "Sidekiq, 1 × 10 threads", 1),
		sidekiq("sidekiq-2", "Sidekiq, 2 × 10 threads", 2),
		worker("ruby-forking", "a Ruby worker that forks for each job", 100, 1, "FORK=1"),
		worker("ruby-plain", "a Ruby worker that does not", 1000, 1),
		worker("ruby-threads", "Ruby workers, 2 × 4 threads", 1000, 2, "THREADS=4"),
		rubyPeer(&peer{name: "echo", title: "an echo of lines by as many runners", guess: 20000, fill: func(context.Context, *target, *scenario, int) error { return nil }}),
	}
}

func rubyPeer(p *peer) *peer {
	p.skip = func(s *scenario) string {
		switch {
		case !s.Runner:
			return "performs Ruby classes only"
		case s.Name != "runner-noop" && (p.name != "echo" || s.Kind != kindQueue || s.RunnerJobs > 0):
			return "is measured once"
		}
		need := "ruby"
		if strings.HasPrefix(p.name, "sidekiq") {
			need = "sidekiq"
		}
		if _, err := exec.LookPath(need); err != nil {
			return "is not here: apt-get install ruby-sidekiq"
		}
		if p.launch != nil && exec.Command("ruby", "-e", `require "redis"`).Run() != nil {
			return "has no client of Redis: apt-get install ruby-redis"
		}
		return ""
	}
	return p
}

// startRuby starts some processes with a command in the directory ruby, as one child.
func startRuby(t *target, processes int, env []string, argv ...string) (*child, error) {
	dir, err := filepath.Abs("ruby")
	if err != nil {
		return nil, err
	}
	argv[len(argv)-1] = filepath.Join(dir, argv[len(argv)-1])
	script := strings.Repeat(`"$@" & `, processes) + "wait"
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, argv...)...)
	cmd.Dir, cmd.Env = t.dir, append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.dir, "LANG=C.UTF-8")
	return start(cmd)
}

func fillSidekiq(ctx context.Context, t *target, s *scenario, n int) error {
	if err := t.redis.client.SAdd(ctx, "queues", s.queueOf(0)).Err(); err != nil {
		return err
	}
	now := float64(time.Now().UnixMilli()) / 1000
	return t.redis.push(ctx, "queue:"+s.queueOf(0), true, n, func(i int) []byte {
		text, err := json.Marshal(map[string]any{
			"class": "Noop", "args": []any{i, s.text()}, "jid": fmt.Sprintf("%024x", i), "retry": true, "queue": s.queueOf(0),
			"created_at": now, "enqueued_at": now,
		})
		if err != nil {
			panic(err) // plain data
		}
		return text
	})
}

// runnerSection is the part of a configuration by which Ruby performs the jobs.
func runnerSection(s *scenario) (string, error) {
	shim, err := filepath.Abs(runnerShim)
	if err != nil {
		return "", err
	}
	app, err := filepath.Abs("ruby/app.rb")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("runners:\n  app: {command: [ruby, %q, %q], concurrency: %d, jobs_per_runner: %d, env: {BOOT: %q, BALLAST: %q}}\nhandlers:\n  \"*\": {runner: app}\n",
		shim, app, max(s.RunnerThreads, 1), s.RunnerJobs,
		strconv.FormatFloat(s.Boot.Seconds(), 'g', -1, 64), strconv.Itoa(s.Ballast)), nil
}

// drainQueue measures by the length of the queue how fast jobs are taken from it, from when the
// first ones are: the only count that all have. What is in hand then is little beside n.
func (m *measurement) drainQueue(ctx context.Context) error {
	if m.p.name == "echo" {
		return m.echo(ctx)
	}
	// Those that are quick to begin are not to be ahead by what they do while others boot.
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
	if !strings.HasPrefix(m.p.name, "sidekiq") {
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

// echo has runners answer the lines of jobs, without anything else: what the socket and Ruby can do.
func (m *measurement) echo(ctx context.Context) error {
	shim, err := filepath.Abs(runnerShim)
	if err != nil {
		return err
	}
	app, err := filepath.Abs("ruby/app.rb")
	if err != nil {
		return err
	}
	processes := m.s.Processes * m.s.Threads / max(m.s.RunnerThreads, 1)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var done atomic.Int64
	var ready, over sync.WaitGroup
	begin, stop := make(chan struct{}), make(chan struct{})
	failed := make(chan error, processes)
	for range processes {
		ready.Add(1)
		over.Go(func() {
			if err := answer(ctx, shim, app, max(m.s.RunnerThreads, 1), &ready, begin, stop, &done); err != nil {
				failed <- err
			}
		})
	}
	ready.Wait()
	began := time.Now()
	close(begin)
	pause(m.b.o.window)
	n, took := done.Load(), time.Since(began)
	close(stop)
	over.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	m.r.Jobs, m.r.Seconds = int(n), took.Seconds()
	m.r.Rate = float64(n) / took.Seconds()
	return nil
}

// answer drives one runner, with so many jobs at a time, until stop is closed.
func answer(ctx context.Context, shim, app string, jobs int, ready *sync.WaitGroup, begin, stop chan struct{}, done *atomic.Int64) error {
	told := sync.OnceFunc(ready.Done)
	defer told()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetNonblock(pair[0], true)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer func() { _ = ours.Close() }()
	cmd := exec.CommandContext(ctx, "ruby", shim, app)
	cmd.Env = append(os.Environ(), "RESQUED_FD=3", "RESQUED_RUNNER=echo", "RESQUED_CONCURRENCY="+strconv.Itoa(jobs))
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = ours.Close() }()
	in := bufio.NewReaderSize(ours, 64<<10)
	if _, err := in.ReadBytes('\n'); err != nil {
		return errors.New("a runner has not said hello")
	}
	told()
	<-begin
	number := 0
	send := func() error {
		number++
		_, err := fmt.Fprintf(ours, `{"job":{"number":%d,"id":"host:1-2:0.1/%d","class":"Noop","queue":"q0000","attempt":1,"max_attempts":null,"deaths":0,`+
			`"enqueued_at":null,"deadline":null,"worker":"host~resqued:1.2-3:q0000","lock_key":"resque:locket:job_locks:Noop[%d]","fence":%d,`+
			`"payload":{"class":"Noop","args":[%d,"a subject of some length"]}}}`+"\n", number, number, number, number, number)
		return err
	}
	for range jobs {
		if err := send(); err != nil {
			return err
		}
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		line, err := in.ReadSlice('\n')
		if err != nil || !strings.HasPrefix(string(line), `{"done"`) {
			return fmt.Errorf("a runner said %q: %w", line, errors.Join(err, io.ErrUnexpectedEOF))
		}
		done.Add(1)
		if err := send(); err != nil {
			return err
		}
	}
}
