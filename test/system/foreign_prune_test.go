package system_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/test/system/harness"
)

// A stranger is a worker that another program has registered in Redis.
type stranger struct {
	id string
	// working makes it show a job that it works on.
	working bool
	// beat is its heartbeat; zero means none.
	beat time.Time
}

func (s stranger) register(t *testing.T, d *harness.Daemon) {
	t.Helper()
	require.NoError(t, d.Client.SAdd(t.Context(), d.Key("workers"), s.id).Err())
	require.NoError(t, d.Client.Set(t.Context(), d.Key("worker:"+s.id+":started"), wire.FormatStart(time.Now()), 0).Err())
	require.NoError(t, d.Client.Set(t.Context(), d.Key("stat:processed:"+s.id), 7, 0).Err())
	if s.working {
		running := wire.Running("mail", time.Now(), "A", []byte(`{"class":"A","args":[1]}`))
		require.NoError(t, d.Client.Set(t.Context(), d.Key("worker:"+s.id), running, 0).Err())
	}
	if !s.beat.IsZero() {
		require.NoError(t, d.Client.HSet(t.Context(), d.Key("workers:heartbeat"), s.id, s.beat.Format("2006-01-02T15:04:05-07:00")).Err())
	}
}

// TestRubyStandInPrunes checks the stand-in that the other tests rely on: it prunes as Ruby
// does, including living workers that look like dead ones of its own.
func TestRubyStandInPrunes(t *testing.T) {
	t.Parallel()
	d := harness.Watch(t, redistest.Shared(t).Client(t), redistest.Namespace(t))
	host, err := os.Hostname()
	require.NoError(t, err)

	dead := stranger{id: host + ":4194305:mail", working: true} // beyond every pid
	living := stranger{id: fmt.Sprintf("%s:%d:mail", host, os.Getpid()), working: true}
	ours := stranger{id: wire.WorkerID("p", host, 0, 3, 4194305, []string{"*"}), working: true}
	elsewhere := stranger{id: "elsewhere:4194305:mail", working: true}
	silent := stranger{id: "silent:1:mail", working: true, beat: time.Now().Add(-time.Hour)}
	for _, s := range []stranger{dead, living, ours, elsewhere, silent} {
		s.register(t, d)
	}
	narrow := ruby(t, d, true, "low")
	require.Equal(t, []string{silent.id}, narrow.pruned, "it listens to another queue")
	require.Empty(t, ruby(t, d, false, "*").pruned, "another worker has pruned within the last minute")
	r := ruby(t, d, true, "*")
	require.ElementsMatch(t, []string{dead.id, living.id}, r.pruned)

	failures := d.Failures()
	require.Len(t, failures, 3)
	require.Equal(t, "Resque::PruneDeadWorkerDirtyExit", failures[0].Exception)
	for _, f := range failures[1:] {
		require.Equal(t, "Resque::DirtyExit", f.Exception)
		require.Equal(t, "Job still being processed", f.Error)
		require.True(t, strings.HasPrefix(f.Worker, host+":"), f.Worker)
	}
	members := d.Client.SMembers(t.Context(), d.Key("workers")).Val()
	require.Contains(t, members, ours.id)
	require.Contains(t, members, elsewhere.id)
	require.Contains(t, members, narrow.id, "its process lives")
	require.NotContains(t, members, dead.id)
	require.NotContains(t, members, living.id)

	// A worker of its own that has died is pruned by the next one.
	narrow.die()
	require.Equal(t, []string{narrow.id}, ruby(t, d, true, "*").pruned)
	// A malformed id makes the start fail, as in Ruby.
	require.NoError(t, d.Client.SAdd(t.Context(), d.Key("workers"), "host:1").Err())
	_, err = startRuby(t.Context(), d.Client, d.Space, true, "*")
	require.Error(t, err)
}

// dump returns all keys that are not resqued's own, as Redis serializes them.
func dump(t *testing.T, d *harness.Daemon, ids ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, id := range ids {
		for _, name := range []string{"worker:" + id, "worker:" + id + ":started", "stat:processed:" + id} {
			if text, err := d.Client.Dump(t.Context(), d.Key(name)).Result(); err == nil {
				found[name] = text
			}
		}
		if d.Client.SIsMember(t.Context(), d.Key("workers"), id).Val() {
			found["workers "+id] = ""
		}
		if beat, err := d.Client.HGet(t.Context(), d.Key("workers:heartbeat"), id).Result(); err == nil {
			found["heartbeat "+id] = beat
		}
	}
	for _, name := range d.Keys("*") {
		if strings.HasPrefix(name, "worker:ping:") || strings.Contains(name, ":threads") {
			found[name] = d.Client.Dump(t.Context(), d.Key(name)).Val()
		}
	}
	return found
}

// TestWorkersOfOthersAreLeftAlone checks that resqued recovers only what it has taken itself,
// and leaves foreign workers alone even if they are dead.
func TestWorkersOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Threads: 2, Namespace: redistest.Namespace(t)}
	d := harness.Start(t, o)
	host, err := os.Hostname()
	require.NoError(t, err)
	live := ruby(t, d, true, "*")
	strangers := []stranger{
		{id: host + ":4194305:*", working: true, beat: time.Now().Add(-time.Hour)}, // Ruby, dead
		{id: host + ":4194306:mail,low", working: true},                            // node-resque, dead
		{id: "elsewhere:17:*", working: true},
		{id: host + ":4194307:*:2:3:5", beat: time.Now().Add(-time.Minute)}, // a master of the fork
		// An id in resqued's format, which its own keys do not know.
		{id: wire.WorkerID("p", "elsewhere", 0, 0, 99, []string{"*"}), working: true},
	}
	ids := []string{live.id}
	for _, s := range strangers {
		s.register(t, d)
		ids = append(ids, s.id)
	}
	require.NoError(t, d.Client.Set(t.Context(), d.Key("worker:ping:"+host+":4194306"), `{"time":1}`, 0).Err())
	require.NoError(t, d.Client.SAdd(t.Context(), d.Key("worker:"+strangers[3].id+":threads"), strangers[3].id+":77:0").Err())
	before := dump(t, d, ids...)
	require.Len(t, before, 26, "every key, membership and heartbeat of theirs")

	// Everything that makes resqued recover jobs: a dead worker process, a dead daemon, a
	// daemon's end.
	d.Push("mail", "Gate", 1, 2)
	d.AwaitNoted("started", 2)
	require.NoError(t, unix.Kill(holder(t, d, 1), unix.SIGKILL))
	proctest.Await(t, patience, func() bool { return ranTwice(d) > 0 }, "the recovery of a worker process")
	d.KillTree()
	d.ForgetMasters()
	next := harness.Start(t, o)
	next.Open()
	next.AwaitNoted("ran", 2)
	next.AwaitProcessed(2, patience)
	require.Equal(t, before, dump(t, next, ids...))
	next.Signal(quit)
	require.Zero(t, next.Exit())
	require.Equal(t, before, dump(t, next, ids...))
	require.Empty(t, next.Failures())
}
