package system_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// twoStores is a daemon with the stores a and b, in a server each. What its jobs note goes to the
// Redis that all tests share.
type twoStores struct {
	*harness.Daemon
	t      *testing.T
	a, b   *redistest.Server
	config string
}

func startTwoStores(t *testing.T, o harness.Options) *twoStores {
	t.Helper()
	s := &twoStores{t: t, a: redistest.Start(t, durable), b: redistest.Start(t, durable)}
	s.config = s.stores(o.Config)
	o.App, o.Config = true, s.config
	if o.Binary != "" {
		o.App = false
	}
	s.Daemon = harness.Start(t, o)
	return s
}

// stores is a configuration with both stores, and more lines.
func (s *twoStores) stores(more string) string {
	return fmt.Sprintf("stores:\n  a: {redis_url: %q, queues: [a], worker_count: 2}\n  b: {redis_url: %q, queues: [b, 'b_*']}\n%s", s.a.URL(), s.b.URL(), more)
}

// push enqueues Count jobs.
func (s *twoStores) push(server *redistest.Server, queue, class string, ids ...int) {
	s.t.Helper()
	harness.Watch(s.t, server.Client(s.t), s.Space).Push(queue, class, ids...)
}

// health asks the daemon how it is.
func (s *twoStores) health(more ...string) (text string, code int) {
	s.t.Helper()
	stdout, stderr, code := s.Run(append([]string{"health", "--socket", filepath.Join(s.Dir, "control.sock")}, more...)...)
	return stdout + stderr, code
}

// masterOf is the process in charge of a store.
func (s *twoStores) masterOf(store string) int {
	s.t.Helper()
	text, _ := s.health("-o", "json")
	var v struct {
		Stores []struct {
			Store string `json:"store"`
			PID   int    `json:"pid"`
		} `json:"stores"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(text), &v), text)
	for _, one := range v.Stores {
		if one.Store == store {
			return one.PID
		}
	}
	s.t.Fatalf("no store %s in %s", store, text)
	return 0
}

// ran reports how often jobs have run, and fails if one of them has not, or more than once.
func (s *twoStores) ranOnce(ids []int) {
	s.t.Helper()
	noted := s.Noted("ran")
	for _, id := range ids {
		require.Equal(s.t, "1", noted[strconv.Itoa(id)], "job %d", id)
	}
}

// What is asked of the daemon is asked of each store.
func TestStoresSignals(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{Threads: 2})
	s.Signal(syscall.SIGUSR2)
	s.AwaitStatus("a: paused")
	s.AwaitStatus("b: paused")
	s.push(s.a, "a", "Gate", 1)
	s.push(s.b, "b", "Gate", 2)
	_, code := s.health()
	require.Zero(t, code, "it was paused by hand")
	s.Signal(syscall.SIGCONT)
	s.AwaitNoted("started", 2)
	s.Signal(syscall.SIGUSR1)
	for _, server := range []*redistest.Server{s.a, s.b} {
		db := server.Client(t)
		proctest.Await(t, patience, func() bool { return db.LLen(t.Context(), s.Space+":failed").Val() == 1 }, "the killed job to be recorded")
	}
	s.push(s.a, "a", "Gate", 3)
	s.push(s.b, "b", "Gate", 4)
	s.AwaitNoted("started", 4)
	s.Signal(syscall.SIGQUIT)
	s.AwaitStatus("a: draining")
	s.AwaitStatus("b: draining")
	require.False(t, s.Ended())
	s.Open()
	require.Zero(t, s.Exit())
	require.Equal(t, "1", s.Noted("ran")["3"])
	require.Equal(t, "1", s.Noted("ran")["4"])
}

// The hook of a container drains all stores, and returns when the last of them has left.
func TestStoresDrain(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{Threads: 2})
	socket := filepath.Join(s.Dir, "control.sock")
	s.push(s.a, "a", "Gate", 1)
	s.push(s.b, "b", "Gate", 2)
	s.AwaitNoted("started", 2)
	for _, do := range []string{"reload", "upgrade"} {
		_, stderr, code := s.Run(do, "--socket", socket, "--store", "b")
		require.Equal(t, 2, code, stderr)
		require.Contains(t, stderr, "for all of its stores, not for b alone")
	}
	_, stderr, code := s.Run("drain", "--socket", socket, "--store", "b")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "a daemon that drains leaves all of its stores, not b alone")
	named := s.Command(t.Context(), nil, "drain", "--socket", socket)
	named.Env = append(named.Env, "RESQUED_STORE=b")
	out, err := named.CombinedOutput()
	require.Error(t, err, "the variable names a store as the flag does")
	require.Contains(t, string(out), "Without RESQUED_STORE it drains.")
	s.AwaitStatus("b: running")

	stdout, stderr, code := s.Run("drain", "--socket", socket, "--no-wait")
	require.Zero(t, code, stderr)
	require.Equal(t, fmt.Sprintf("process %d drains\n", s.PID), stdout)
	s.AwaitStatus("a: draining")
	s.AwaitStatus("b: draining")
	text, code := s.health()
	require.Equal(t, 3, code, text)
	text, code = s.health("--alive")
	require.Zero(t, code, "a probe that restarts must not end the drain: "+text)
	s.push(s.a, "a", "Count", 3)
	s.push(s.b, "b", "Count", 4)
	_, stderr, code = s.Run("drain", "--socket", socket, "--timeout", "10ms")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "drains and has not left after 10ms")

	hook := s.Command(t.Context(), nil, "drain", "--socket", socket)
	told, ended := "", make(chan error, 1)
	go func() {
		out, err := hook.CombinedOutput()
		told = string(out)
		ended <- err
	}()
	s.Open()
	if err := <-ended; err == nil {
		require.Equal(t, fmt.Sprintf("process %d has finished its jobs and left\n", s.PID), told)
	} else { // the daemon was faster than the start of the command
		require.Contains(t, told, "no daemon listens there")
	}
	require.Zero(t, s.Exit())
	s.ranOnce([]int{1, 2})
	for queue, server := range map[string]*redistest.Server{"a": s.a, "b": s.b} {
		db := server.Client(t)
		require.EqualValues(t, 1, db.LLen(t.Context(), s.Space+":queue:"+queue).Val(), "what came later waits for another daemon")
		require.Zero(t, db.LLen(t.Context(), s.Space+":failed").Val())
	}
}

// A store whose Redis is away has nothing in hand, and does not hold up a drain.
func TestStoresDrainWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{Threads: 2})
	s.b.Kill()
	proctest.Await(t, patience, func() bool { text, _ := s.health(); return strings.Contains(text, "b: Redis away") }, "that store b is said to be away")
	stdout, stderr, code := s.Run("drain", "--socket", filepath.Join(s.Dir, "control.sock"))
	require.Zero(t, code, stdout+stderr)
	require.Zero(t, s.Exit())
}

// A reload adds, removes and changes stores.
func TestStoresReload(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{Threads: 2})
	a := s.masterOf("a")
	s.push(s.b, "b", "Gate", 1)
	s.AwaitNoted("started", 1)
	reload := func(want int) string {
		t.Helper()
		stdout, stderr, code := s.Run("reload", "--socket", filepath.Join(s.Dir, "control.sock"))
		require.Equal(t, want, code, stdout+stderr)
		return stdout + stderr
	}
	s.Configure("stores: {a: {queues: []}}")
	require.Contains(t, reload(1), "refused")
	s.AwaitStatus("b: running")

	// b goes, c comes, in b's server; a gets another queue.
	c := fmt.Sprintf("  c: {redis_url: %q, namespace: %q, queues: [c]}\n", s.b.URL(), s.Space+"-c")
	s.Configure(fmt.Sprintf("stores:\n  a: {redis_url: %q, queues: [a, more]}\n%s", s.a.URL(), c))
	text := reload(0)
	require.Contains(t, text, "b: is no more")
	require.Contains(t, text, "c: its master is started")
	require.Equal(t, a, s.masterOf("a"), "the master of a goes on")
	s.push(s.a, "more", "Count", 2)
	harness.Watch(t, s.b.Client(t), s.Space+"-c").Push("c", "Count", 3)
	s.AwaitNoted("ran", 2)
	s.push(s.b, "b", "Count", 4)
	require.Empty(t, s.Noted("ran")["1"], "the job in hand goes on")
	s.Open()
	s.AwaitNoted("ran", 3)
	proctest.Await(t, patience, func() bool { return !strings.Contains(s.Status(), "b: ") }, "store b to be gone")
	require.EqualValues(t, 1, s.b.Client(t).LLen(t.Context(), s.Space+":queue:b").Val(), "no daemon works b")

	// a moves to another namespace: another master works there.
	s.Configure(fmt.Sprintf("stores:\n  a: {redis_url: %q, namespace: %q, queues: [a]}\n%s", s.a.URL(), s.Space+"-a", c))
	require.Contains(t, reload(0), "a: has another server or namespace")
	harness.Watch(t, s.a.Client(t), s.Space+"-a").Push("a", "Count", 5)
	s.AwaitNoted("ran", 4)
	proctest.Await(t, patience, func() bool { return s.masterOf("a") != a }, "the end of the master before")

	s.Configure("queues: [a]")
	require.Contains(t, reload(1), "no stores any more")
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Exit())
}

// A reload that one store refuses takes effect in none: no store works with a new configuration beside
// others with the old one, and none comes or goes.
func TestStoresReloadRefusedByOne(t *testing.T) {
	t.Parallel()
	refuse := filepath.Join(t.TempDir(), "refuse")
	s := startTwoStores(t, harness.Options{Threads: 2, Env: []string{"RESQUED_TEST_REFUSE=" + refuse}})
	a, b := s.masterOf("a"), s.masterOf("b")
	reload := func(want int) string {
		t.Helper()
		stdout, stderr, code := s.Run("reload", "--socket", filepath.Join(s.Dir, "control.sock"))
		require.Equal(t, want, code, stdout+stderr)
		return stdout + stderr
	}
	next := fmt.Sprintf("stores:\n  a: {redis_url: %q, queues: [a, more]}\n  b: {redis_url: %q, queues: [b, 'b_*', other]}\n  c: {redis_url: %q, namespace: %q, queues: [c]}\n",
		s.a.URL(), s.b.URL(), s.b.URL(), s.Space+"-c")
	s.Configure(next)
	require.NoError(t, os.WriteFile(refuse, []byte(strconv.Itoa(b)), 0o600))
	text := reload(1)
	require.Contains(t, text, "b: refused: its first worker process ended: exit code 1")
	require.Contains(t, text, "a: keeps the configuration that it has, as another store has refused the new one")
	require.NotContains(t, text, "c: ")
	require.Equal(t, []int{a, b}, []int{s.masterOf("a"), s.masterOf("b")})
	require.NotContains(t, s.Status(), "c: ")
	// a works as before: not the queue that only the new configuration has.
	s.push(s.a, "more", "Count", 1)
	s.push(s.a, "a", "Count", 2)
	s.push(s.b, "b", "Count", 3)
	s.AwaitNoted("ran", 2)
	require.Empty(t, s.Noted("ran")["1"])
	require.EqualValues(t, 1, s.a.Client(t).LLen(t.Context(), s.Space+":queue:more").Val())
	// Once it is mended, the same file does.
	require.NoError(t, os.Remove(refuse))
	text = reload(0)
	require.Contains(t, text, "a: the new configuration is in force")
	require.Contains(t, text, "c: its master is started")
	s.AwaitNoted("ran", 3)
	s.Signal(syscall.SIGTERM)
	require.Zero(t, s.Exit())
}

// A daemon without stores cannot get some while it runs.
func TestStoresCannotBeAdded(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{})
	d.Configure("stores: {a: {queues: [a]}, b: {namespace: b, queues: [b]}}")
	_, stderr, code := d.Run("reload", "--socket", filepath.Join(d.Dir, "control.sock"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "stores cannot be added to a daemon while it runs: restart it")
	require.Contains(t, d.Status(), "running")
}

// A new version takes over in each store, and no job is lost.
func TestStoresUpgrade(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "worker")
	install := func(from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		proctest.WriteProgram(t, program+".new", text)
		require.NoError(t, os.Rename(program+".new", program))
	}
	install(harness.App(t))
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(out.Name())
			t.Log(string(text))
		}
		_ = out.Close()
	})
	s := startTwoStores(t, harness.Options{Binary: program, Threads: 2, Output: out})
	before := []int{s.masterOf("a"), s.masterOf("b")}
	s.push(s.a, "a", "Gate", 1)
	s.AwaitNoted("started", 1)
	n := harness.Jobs(200)
	s.push(s.a, "a", "Count", harness.Range(10, 10+n)...)
	s.push(s.b, "b", "Count", harness.Range(100_000, 100_000+n)...)
	install(harness.NextApp(t))
	stdout, stderr, code := s.Run("reload", "--socket", filepath.Join(s.Dir, "control.sock"))
	require.Zero(t, code, stdout+stderr)
	after := []int{s.masterOf("a"), s.masterOf("b")}
	require.NotContains(t, before, after[0])
	require.NotContains(t, before, after[1])
	s.Open()
	s.AwaitNoted("ran", 2*n+3)
	for _, pid := range before {
		proctest.Await(t, patience, func() bool { _, there := proctest.Look(pid); return !there }, "the old masters to end")
	}
	s.ranOnce(append(harness.Range(10, 10+n), harness.Range(100_000, 100_000+n)...))
	// What the process above tells them reaches the new ones.
	s.Signal(syscall.SIGUSR2)
	s.AwaitStatus("a: paused")
	s.AwaitStatus("b: paused")
	s.Signal(syscall.SIGQUIT)
	require.Zero(t, s.Exit())
}

// A store whose configuration no worker process can use ends the daemon, as it does without
// stores.
func TestStoresRefused(t *testing.T) {
	t.Parallel()
	s := &twoStores{t: t, a: redistest.Start(t, redistest.Options{}), b: redistest.Start(t, redistest.Options{})}
	s.Daemon = harness.Start(t, harness.Options{App: true, Unready: true, Config: s.stores(""), Env: []string{"LOCKET_JOB_LOCK_KEY=nonsense"}})
	require.Equal(t, 2, s.Exit(), s.Log())
	d := harness.Start(t, harness.Options{App: true, Config: s.stores("until_empty: true"), Unready: true})
	require.Zero(t, d.Exit(), d.Log())
}

// The command that moves a queue is killed again and again, while both stores are worked: each job
// runs once.
func TestStoresMoveKilled(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{Threads: 2})
	s.Signal(syscall.SIGUSR2)
	s.AwaitStatus("a: paused")
	s.AwaitStatus("b: paused")
	n := harness.Jobs(3000)
	s.push(s.a, "b_moved", "Count", harness.Range(1, n)...) // a queue of b by now, that has jobs in a
	for kill := range 8 {
		cmd := s.Command(t.Context(), nil, "queues", "move", "b_moved", "--to", "b", "--store", "a", "--yes")
		cmd.Env = append(cmd.Env, "RESQUED_CONFIG="+s.ConfigFile)
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		db, want := s.b.Client(t), int64(n*kill/10)
		proctest.Await(t, patience, func() bool {
			select {
			case err := <-done:
				done <- err
				return true
			default:
			}
			return db.LLen(t.Context(), s.Space+":queue:b_moved").Val() > want
		}, "some to have been moved")
		_ = cmd.Process.Kill()
		if err := <-done; err != nil {
			t.Logf("move %d: %v", kill, err) // killed
		}
	}
	s.Signal(syscall.SIGCONT)
	cmd := s.Command(t.Context(), nil, "queues", "move", "b_moved", "--to", "b", "--store", "a", "--yes")
	cmd.Env = append(cmd.Env, "RESQUED_CONFIG="+s.ConfigFile)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	s.AwaitNoted("ran", n)
	s.ranOnce(harness.Range(1, n))
	left := s.a.Client(t).Exists(t.Context(), s.Space+":queue:b_moved", s.Space+":resqued:moving:b_moved").Val()
	require.Zero(t, left)
}

// Two namespaces with different tags lie on different nodes of a Cluster: one node is killed, and
// the store on the other works on.
func TestStoresInCluster(t *testing.T) {
	t.Parallel()
	var nodes []*redistest.Server
	var urls []string
	for range 3 {
		node := redistest.Start(t, redistest.Options{Args: append(slices.Clone(durable.Args),
			"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000")})
		nodes, urls = append(nodes, node), append(urls, node.Addr)
	}
	for i, node := range nodes {
		db := node.Client(t)
		require.NoError(t, db.ClusterAddSlotsRange(t.Context(), 16384*i/3, 16384*(i+1)/3-1).Err())
		for _, other := range nodes {
			host, port, _ := strings.Cut(other.Addr, ":")
			require.NoError(t, db.ClusterMeet(t.Context(), host, port).Err())
		}
	}
	for _, node := range nodes {
		db := node.Client(t)
		proctest.Await(t, patience, func() bool {
			info := db.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") && strings.Contains(info, "cluster_size:3")
		}, "the cluster to be up")
	}
	// Tags that lie on the first node and on the last.
	space := redistest.Namespace(t)
	tagOn := func(node int) string {
		for i := 0; ; i++ {
			tag := fmt.Sprintf("{%s-%d}", space, i)
			if slot := nodes[0].Client(t).ClusterKeySlot(t.Context(), tag).Val(); int(slot)*3/16384 == node {
				return tag
			}
		}
	}
	tags := []string{tagOn(0), tagOn(2)}
	config := "stores:\n"
	for i, name := range []string{"a", "b"} {
		config += fmt.Sprintf("  %s: {redis_url: %q, namespace: %q, queues: [%s]}\n", name, "redis-cluster://"+strings.Join(urls, ","), tags[i], name)
	}
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Config: config})
	push := func(i int, ids ...int) {
		t.Helper()
		harness.Watch(t, nodes[2*i].Client(t), tags[i]).Push([]string{"a", "b"}[i], "Count", ids...)
	}
	n := harness.Jobs(200)
	push(0, harness.Range(1, n)...)
	push(1, harness.Range(n+1, 2*n)...)
	d.AwaitNoted("ran", n/2)
	nodes[2].Kill()
	push(0, harness.Range(2*n+1, 3*n)...)
	ran := func(first, last int) bool {
		all := d.Noted("ran")
		return !slices.ContainsFunc(harness.Range(first, last), func(id int) bool { return all[strconv.Itoa(id)] == "" })
	}
	proctest.Await(t, patience, func() bool { return ran(1, n) && ran(2*n+1, 3*n) }, "the jobs of the store whose node lives")
	d.AwaitStatus("b: Redis away")
	nodes[2].Restart()
	proctest.Await(t, patience, func() bool { return ran(1, 3*n) }, "the jobs of the other store, now that its node is back")
	for i, tag := range tags {
		require.Zero(t, nodes[2*i].Client(t).LLen(t.Context(), tag+":failed").Val())
	}
	d.Signal(syscall.SIGQUIT)
	require.Zero(t, d.Exit())
}

// A master that is stopped hears no TERM: the third one kills it.
func TestStoresStoppedMaster(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t, harness.Options{})
	require.NoError(t, syscall.Kill(s.masterOf("b"), syscall.SIGSTOP))
	proctest.Await(t, patience, func() bool {
		_ = syscall.Kill(s.PID, syscall.SIGTERM) // it may have ended
		return s.AwaitEnd(100 * time.Millisecond)
	}, "the end")
}
