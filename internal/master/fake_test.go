package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

func TestMain(m *testing.M) {
	if proc.IsWorker() {
		os.Exit(realWorker())
	}
	goleak.VerifyTestMain(m)
}

// fixture is a master with fakes, inside a synctest bubble: only waiting takes time.
type fixture struct {
	t       *testing.T
	m       *Master
	sys     *fakeSystem
	redis   *fakeRedis
	systemd *fakeNotifier
	signals chan os.Signal
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error
	reload  func() (Config, error)
	logs    *observer.ObservedLogs
	died    deaths
	// requests and upgrade are the master's; charges are its calls of InCharge.
	requests chan Request
	upgrade  Upgrade
	charges  []bool
}

// deaths are the counted classes.
type deaths struct {
	mu      sync.Mutex
	classes []string
	repairs []int // the duplicates dropped by each repair
}

func (d *deaths) Repaired(duplicates int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.repairs = append(d.repairs, duplicates)
}

func (d *deaths) Died(class, _ string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.classes = append(d.classes, class)
}

func (d *deaths) seen() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.classes)
}

// setup runs a master of 2 slots with 4 threads each.
func setup(t *testing.T, change ...func(*fixture, *Config)) *fixture {
	t.Helper()
	f := &fixture{
		t: t, sys: &fakeSystem{t: t}, redis: &fakeRedis{held: map[string][]store.Reserved{}},
		systemd: &fakeNotifier{}, requests: make(chan Request), signals: make(chan os.Signal, 64), ended: make(chan struct{}),
	}
	cfg := Config{Slots: 2, Threads: 4, MaxRetiring: 1, TermTimeout: 10 * time.Second, MaxDeaths: 3, Worker: []byte("one")}
	for _, c := range change {
		c(f, &cfg)
	}
	core, logs := observer.New(zap.InfoLevel)
	f.logs = logs
	m, err := New(cfg, Deps{
		Self:   proc.Identity{Host: "h", Boot: "b", PID: 1, Start: 2},
		System: f.sys, Store: f.redis, Notifier: f.systemd, Log: zap.New(core), Stats: &f.died, Signals: f.signals,
		Requests: f.requests, Upgrade: f.upgrade,
		Reload: func(context.Context) (Config, error) { return f.reload() },
	})
	require.NoError(t, err)
	f.m = m
	ctx, cancel := context.WithCancel(t.Context())
	f.cancel = cancel
	go func() {
		defer close(f.ended)
		f.err = m.Run(ctx)
	}()
	synctest.Wait()
	t.Cleanup(func() {
		// Nothing may survive the test.
		f.redis.set(func() { f.redis.down = nil })
		f.sys.sweepError(nil)
		cancel()
		for range 3 {
			synctest.Wait()
			for _, c := range f.sys.alive() {
				c.die(proc.Exit{Code: -1, Signal: syscall.SIGKILL})
			}
		}
		<-f.ended
	})
	return f
}

// up makes n worker processes work, and returns them in the order of spawning.
func (f *fixture) up(n int) []*fakeChild {
	f.t.Helper()
	var up []*fakeChild
	for range n {
		c := f.newest()
		c.boot()
		up = append(up, c)
	}
	return up
}

func (f *fixture) newest() *fakeChild {
	f.t.Helper()
	synctest.Wait()
	all := f.sys.all()
	require.NotEmpty(f.t, all)
	return all[len(all)-1]
}

func (f *fixture) spawned() int {
	synctest.Wait()
	return len(f.sys.all())
}

func (f *fixture) signal(sig os.Signal) {
	f.signals <- sig
	synctest.Wait()
}

func (f *fixture) wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// look waits until the recoverer has looked around again. Rounds are 4.5 to 5.5 s apart, so a
// fixed wait may see none or two.
func (f *fixture) look() {
	f.t.Helper()
	for before, tries := f.redis.renewals(), 0; f.redis.renewals() == before; tries++ {
		require.Less(f.t, tries, 20, "the recoverer does not look around")
		f.wait(roundEvery / 10)
	}
}

func (f *fixture) over() error {
	f.t.Helper()
	select {
	case <-f.ended:
		return f.err
	case <-time.After(time.Hour):
		f.t.Fatal("the master does not end")
		return nil
	}
}

func (f *fixture) running() bool {
	synctest.Wait()
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// fakeChild is a worker process controlled by the test.
type fakeChild struct {
	t    *testing.T
	sys  *fakeSystem
	pid  int
	spec proc.Spec

	mu       sync.Mutex
	heard    []proc.Message // from the master, not yet looked at
	graced   time.Duration
	looks    []proc.Message // what hear leaves out
	said     chan proc.Message
	exit     proc.Exit
	gone     chan struct{}
	dead     bool
	full     bool
	mute     bool // no beats
	rss      int64
	busy     int
	killed   bool
	hard     bool          // not even SIGKILL ends it at once
	swept    bool          // what it has started was ended while it was there
	stuck    chan struct{} // a sweep goes on until it is closed; nil: it does not
	sweeping chan struct{}
}

func (c *fakeChild) PID() int { return c.pid }

func (c *fakeChild) Send(m proc.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return syscall.EPIPE
	case c.full:
		return proc.ErrFull
	}
	c.heard = append(c.heard, m)
	return nil
}

func (c *fakeChild) Recv() (proc.Message, error) {
	m, ok := <-c.said
	if !ok {
		return m, io.EOF
	}
	if m.Type == "garbage" {
		return m, errors.New("no JSON")
	}
	return m, nil
}

func (c *fakeChild) Kill() error {
	c.mu.Lock()
	c.killed = true
	hard := c.hard
	c.mu.Unlock()
	if !hard {
		c.die(proc.Exit{Code: -1, Signal: syscall.SIGKILL})
	}
	return nil
}

// Sweep notes whether the process still existed.
func (c *fakeChild) Sweep(ctx context.Context) (int, error) {
	c.mu.Lock()
	dead, killed, stuck := c.dead, c.killed, c.stuck
	c.mu.Unlock()
	select {
	case c.sweeping <- struct{}{}: // one at a time
		defer func() { <-c.sweeping }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if !dead && !killed {
		panic("swept below a process that may start others")
	}
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if dead {
		return c.sys.Sweep(ctx, c.spec.Proc)
	}
	c.sys.mu.Lock()
	err := c.sys.noSweep
	c.sys.mu.Unlock()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = true
	return 0, nil
}

func (c *fakeChild) wasSwept() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swept
}

func (c *fakeChild) Wait() proc.Exit {
	<-c.gone
	return c.exit
}

func (c *fakeChild) CloseRead() error { return nil }

func (c *fakeChild) Close() error { return nil }

func (c *fakeChild) die(e proc.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.dead, c.exit = true, e
	close(c.said)
	close(c.gone)
}

func (c *fakeChild) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *fakeChild) wasKilled() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// say sends a message to the master.
func (c *fakeChild) say(m proc.Message) {
	c.mu.Lock()
	if !c.dead {
		c.said <- m
	}
	c.mu.Unlock()
	synctest.Wait()
}

// grace returns the last grace sent.
func (c *fakeChild) grace() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graced
}

// hear returns the master's messages since the last call, in short: "state paused".
func (c *fakeChild) hear() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []string{}
	for _, m := range c.heard {
		text := m.Type
		c.graced = max(c.graced, m.Grace)
		switch m.Type {
		case proc.Look, proc.Poller:
			c.looks = append(c.looks, m)
			continue
		case proc.Welcome, proc.SetState:
			text += " " + m.State
			if m.Alone {
				text += " alone"
			}
		case proc.KillJobs:
			text += fmt.Sprintf(" %s", m.Grace)
			if m.Exit {
				text += " exit"
			}
			if m.Requeue {
				text += " requeue"
			}
			if m.Cause != "" {
				text += ": " + m.Cause
			}
		}
		list = append(list, text)
	}
	c.heard = nil
	return list
}

// told returns the master's messages about looking for jobs since the last call.
func (c *fakeChild) told() []string {
	c.hear()
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []string{}
	for _, m := range c.looks {
		list = append(list, fmt.Sprint(m.Type, " ", m.On))
	}
	c.looks = nil
	return list
}

// locksLast tells the master when the first lock ends. The boot clock is real: if a busy machine
// delays the message, it is sent again.
func (c *fakeChild) locksLast(d time.Duration) {
	for {
		at := procfs.BootTime()
		c.say(proc.Message{Type: proc.Beat, LockEnd: at + d})
		if procfs.BootTime()-at < 50*time.Millisecond {
			return
		}
	}
}

func (c *fakeChild) hello() []string {
	c.say(proc.Message{Type: proc.Hello, Protocol: proc.Protocol, PID: c.pid})
	return c.hear()
}

// boot fakes a good start. From then on the worker process beats.
func (c *fakeChild) boot() {
	c.t.Helper()
	require.Len(c.t, c.hello(), 1)
	c.ready()
}

func (c *fakeChild) ready() {
	c.say(proc.Message{Type: proc.Ready, RSS: c.rss})
	go func() {
		tick := time.NewTicker(proc.BeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-c.gone:
				return
			case <-tick.C:
				c.mu.Lock()
				if !c.mute && !c.dead {
					c.said <- proc.Message{Type: proc.Beat, Busy: c.busy, Done: 1}
				}
				c.mu.Unlock()
			}
		}
	}()
}

// leave fakes an orderly end.
func (c *fakeChild) leave(done int, reason string) {
	c.say(proc.Message{Type: proc.Bye, Done: done, Reason: reason})
	c.die(proc.Exit{})
	synctest.Wait()
}

// crash fakes a death.
func (c *fakeChild) crash() {
	c.die(proc.Exit{Code: -1, Signal: syscall.SIGSEGV, MaxRSS: 64 << 20})
	synctest.Wait()
}

type fakeSystem struct {
	t        *testing.T
	mu       sync.Mutex
	children []*fakeChild
	fail     error
	swept    []string
	noSweep  error
	dead     map[string]bool // masters
	living   map[int]bool    // worker processes of others
	titles   []string
	strays   int
	oom      procfs.OOM
}

func (s *fakeSystem) Spawn(spec proc.Spec) (Child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	c := &fakeChild{
		busy: 1, t: s.t, sys: s, pid: 1000 + len(s.children), spec: spec,
		said: make(chan proc.Message, 1000), gone: make(chan struct{}), sweeping: make(chan struct{}, 1),
	}
	s.children = append(s.children, c)
	return c, nil
}

func (s *fakeSystem) all() []*fakeChild {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.children)
}

func (s *fakeSystem) alive() []*fakeChild {
	return slices.DeleteFunc(s.all(), (*fakeChild).isDead)
}

func (s *fakeSystem) Sweep(_ context.Context, name string) (int, error) {
	for _, c := range s.alive() {
		if c.spec.Proc == name {
			panic("swept after a living process")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noSweep != nil {
		return 0, s.noSweep
	}
	s.swept = append(s.swept, name)
	return 0, nil
}

func (s *fakeSystem) sweepError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noSweep = err
}

func (s *fakeSystem) hasSwept(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.swept, name)
}

func (s *fakeSystem) Dead(id proc.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead[id.String()]
}

func (s *fakeSystem) DeadWorker(t procfs.Traces) (dead, inReach bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.living[t.PID], t.View != "hidden"
}

func (s *fakeSystem) OOMKills() procfs.OOM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oom
}

func (s *fakeSystem) ReapStrays(func(int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strays++
}

// looks is the number of looks for strays.
func (s *fakeSystem) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.strays
}

func (s *fakeSystem) SetTitle(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.titles = append(s.titles, text)
}

func (s *fakeSystem) title() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.titles[len(s.titles)-1]
}

// fakeRedis records what the recoverer does.
type fakeRedis struct {
	mu       sync.Mutex
	down     error
	silent   bool // it does not even refuse
	held     map[string][]store.Reserved
	bad      []string
	orphans  []string
	ahead    time.Duration // of its clock
	full     error         // nothing can be moved
	procs    []string
	fenced   []string
	verdicts []string // "token requeue", "token fail"
	suspects []string // tokens of those requeued as such
	failures []string
	counts   []string // keys that go with failures
	answers  []store.KillAnswer
	masters  []store.MasterInfo
	dropped  bool
	lined    int64
	check    func(proc string)
	uneven   []string
	repaired []string
	repair   store.UniqueReport // what each repair reports
	left     []string           // queues of which keys are left
	unread   []store.Unread
	sweeps   int
	// traces of processes; other masters' have pid 4711, which every process sees.
	traces   map[string]map[string]string
	policies map[string]store.Policy
	noPolicy error
	orders   []store.Order // the next renewal takes them
}

func (r *fakeRedis) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *fakeRedis) seen() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.verdicts)
}

func (r *fakeRedis) PutMaster(ctx context.Context, m store.MasterInfo) ([]store.Order, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return nil, ctx.Err()
	}
	if r.down == nil {
		r.masters = append(r.masters, m)
	}
	orders := r.orders
	r.orders = nil
	return orders, r.down
}

// shown is a field of the master's entry as last written.
func (r *fakeRedis) shown(field string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.masters[len(r.masters)-1].Fields[field]
}

// renewals is the number of writes of the master's entry.
func (r *fakeRedis) renewals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.masters)
}

func (r *fakeRedis) DropMaster(context.Context, string) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = true
	return r.lined, r.down
}

func (r *fakeRedis) CheckEviction(context.Context) error { return nil }

func (r *fakeRedis) NoteOtherWorkers(context.Context, time.Duration) error { return nil }

func (r *fakeRedis) Unpark(context.Context) (int, error) { return 0, nil }

func (r *fakeRedis) RestoreFailed(context.Context) ([]string, error) { return nil, nil }

func (r *fakeRedis) LookAround(_ context.Context, _, place, _ string) (store.Around, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return store.Around{Orphans: slices.Clone(r.orphans), Now: time.Now().Add(r.ahead), Unread: r.unread, Local: r.local(place)}, r.down
}

func (r *fakeRedis) SettingsOf(context.Context, string) (host, settings string, err error) {
	return "", "", nil
}

func (r *fakeRedis) local(place string) []string {
	return slices.DeleteFunc(slices.Clone(r.procs), func(p string) bool { return !strings.HasPrefix(p, place+":") })
}

func (r *fakeRedis) ProcFields(_ context.Context, name string, _ []string) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.traces[name]; ok {
		return t, r.down
	}
	return procfs.Traces{PID: 4711, Start: 1}.Fields(), r.down
}

func (r *fakeRedis) Fence(_ context.Context, name string, force bool) ([]store.Reserved, []string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return nil, nil, r.down
	}
	if r.check != nil {
		r.check(name)
	}
	if !force && !slices.Contains(r.orphans, name) {
		return nil, nil, store.ErrAlive
	}
	r.fenced = append(r.fenced, name)
	return r.held[name], r.bad, nil
}

func (r *fakeRedis) PolicyOf(_ context.Context, name string, fallback store.Policy) (store.Policy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noPolicy != nil {
		return store.Policy{}, r.noPolicy
	}
	if p, ok := r.policies[name]; ok {
		return p, nil
	}
	return fallback, nil
}

func (r *fakeRedis) Recover(_ context.Context, name string, verdicts []store.Verdict) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	for i, v := range verdicts {
		if r.full != nil && !v.Park {
			return r.full
		}
		if v.Kill != nil {
			r.answers = append(r.answers, *v.Kill)
		}
		switch v.Action {
		case store.Again:
			r.verdicts = append(r.verdicts, v.Token+" again")
		case store.Fail:
			verdicts[i].Failed = true
			r.verdicts = append(r.verdicts, v.Token+" fail")
			r.failures = append(r.failures, string(v.Failure.Text))
			r.counts = append(r.counts, v.Counts...)
		case store.Back:
			r.verdicts = append(r.verdicts, v.Token+" back")
		default:
			r.verdicts = append(r.verdicts, v.Token+" requeue")
		}
		if v.Action == store.Suspect {
			r.suspects = append(r.suspects, v.Token)
		}
	}
	delete(r.held, name)
	r.procs = slices.DeleteFunc(r.procs, func(p string) bool { return p == name })
	r.orphans = slices.DeleteFunc(r.orphans, func(p string) bool { return p == name })
	return nil
}

func (r *fakeRedis) OutOfStep(_ context.Context, u store.UniqueQueues, cursor uint64) ([]string, uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var queues []string
	for _, q := range r.uneven {
		if u.Match(q) {
			queues = append(queues, q)
		}
	}
	return queues, cursor, r.down
}

func (r *fakeRedis) RepairUneven(_ context.Context, queue string) (store.UniqueReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.repair
	report.Queue = queue
	if !report.TooLong {
		r.repaired = append(r.repaired, queue)
		r.uneven = slices.DeleteFunc(slices.Clone(r.uneven), func(q string) bool { return q == queue })
	}
	return report, r.down
}

func (r *fakeRedis) DropLeftovers(_ context.Context, kept func(queue string) bool, _ uint64) (queues []string, next uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweeps++
	r.left = slices.DeleteFunc(slices.Clone(r.left), func(q string) bool {
		if !kept(q) {
			queues = append(queues, q)
		}
		return !kept(q)
	})
	return queues, 0, r.down
}

// hold records jobs of a worker process.
func (r *fakeRedis) hold(name string, jobs ...store.Reserved) {
	r.set(func() {
		for _, j := range jobs {
			if j.Payload == nil {
				j.Payload = []byte(`{"class":"Mail","args":[1]}`)
			}
			r.held[name] = append(r.held[name], j)
		}
	})
}

type fakeNotifier struct {
	mu       sync.Mutex
	messages []string
	watchdog time.Duration
}

func (n *fakeNotifier) note(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.messages = append(n.messages, text)
}

// count counts a kind of message.
func (n *fakeNotifier) count(text string) int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	found := 0
	for _, m := range n.messages {
		if strings.HasPrefix(m, text) {
			found++
		}
	}
	return found
}

func (n *fakeNotifier) Ready()                          { n.note("ready") }
func (n *fakeNotifier) HandOver(pid int)                { n.note(fmt.Sprintf("main pid %d", pid)) }
func (n *fakeNotifier) Hold()                           { n.note("hold") }
func (n *fakeNotifier) Speak()                          { n.note("speak") }
func (n *fakeNotifier) Status(text string)              { n.note("status " + text) }
func (n *fakeNotifier) Reloading()                      { n.note("reloading") }
func (n *fakeNotifier) Stopping()                       { n.note("stopping") }
func (n *fakeNotifier) ExtendTimeout(d time.Duration)   { n.note("extend " + d.String()) }
func (n *fakeNotifier) Watchdog()                       { n.note("watchdog") }
func (n *fakeNotifier) WatchdogInterval() time.Duration { return n.watchdog }

// bubble runs one subtest inside a synctest bubble.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}
