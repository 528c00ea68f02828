package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// lockFixture is a namespace with a process that runs jobs.
type lockFixture struct {
	t      *testing.T
	server *redistest.Server
	ns     string
	redis  *redis.Client
	store  *store.Store
}

func newLockFixture(t *testing.T) *lockFixture {
	t.Helper()
	server := redistest.Shared(t)
	f := &lockFixture{t: t, server: server, ns: redistest.Namespace(t), redis: server.Client(t)}
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: f.ns, Lease: time.Hour, LockTTL: store.DefaultLease})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	f.store = s
	require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "p1", Workers: []string{"web-1~resqued:9120.0.3-k2f9:q:,q"}}))
	return f
}

// reserve takes a job as the process does.
func (f *lockFixture) reserve(payload string) store.Reserved {
	f.t.Helper()
	_, err := f.store.Push(f.t.Context(), "q", []byte(payload))
	require.NoError(f.t, err)
	reply, err := f.store.Exchange(f.t.Context(), store.ExchangeRequest{
		Proc: "p1", Wants: []store.Want{{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.3-k2f9:q:,q"}}, Queues: []store.Queue{{Name: "q", Locked: true}},
	})
	require.NoError(f.t, err)
	require.Len(f.t, reply.Jobs, 1)
	return reply.Jobs[0]
}

func (f *lockFixture) run(args ...string) (exit int, stdout, stderr string) {
	f.t.Helper()
	var out, errs bytes.Buffer
	a := &cli{
		handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: &out, stderr: &errs},
		args: append([]string{"--redis-url", f.server.URL(), "-n", f.ns}, args...),
	}
	exit = a.run(f.t.Context())
	return exit, out.String(), errs.String()
}

func TestLocksOfRunningJobs(t *testing.T) {
	t.Parallel()
	t.Run("the list and a lock in full name the job", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"Sync","args":[42]}`)
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":lock:Sync:42", "1000:resqued:p1#"+job.Token, 0).Err())
		exit, out, _ := f.run("locks")
		require.Zero(t, exit)
		require.Regexp(t, `(?m)^locket   locket:job_locks:Sync\[42\]  web-1:9120\.0\.3 Sync +(<1s|\d+s)  +\d+s  held$`, out)
		require.Regexp(t, `(?m)^timeout  lock:Sync:42 +web-1:9120\.0\.3 Sync +(<1s|\d+s)  +past  expired$`, out)
		_, out, _ = f.run("locks", "show", "Sync[42]")
		for _, line := range []string{
			"worker   web-1~resqued:9120.0.3-k2f9:q:,q", "process  p1", "token    " + job.Token, "queue    q", "class    Sync", "args     [42]",
			fmt.Sprintf("fence    %d", job.Fence), "value    resqued:p1#" + job.Token,
		} {
			require.Contains(t, out, line+"\n")
		}
		_, out, _ = f.run("locks", "show", "Sync[42]", "-o", "json")
		require.Regexp(t, fmt.Sprintf(`"holder":"web-1~resqued:9120\.0\.3-k2f9:q:,q","age_s":\d+,"ttl_s":\d+,"state":"held","expires_s":null,`+
			`"class":"Sync","args":\[42\],"queue":"q".*"fence":%d,"payload"`, job.Fence), out)
	})
	t.Run("a lock whose job runs is kept, and it is said how to end the job", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		job := f.reserve(`{"class":"Sync","args":[42]}`)
		exit, out, errs := f.run("locks", "release", "Sync[42]")
		require.Equal(t, exitFailed, exit)
		require.Empty(t, out)
		require.Regexp(t, `lock "locket:job_locks:Sync\[42\]" is held by Sync\[42\], running for (<1s|\d+s) as web-1:9120\.0\.3; resqued jobs kill p1/\d+ kills it`, errs)
		require.EqualValues(t, 1, f.redis.Exists(t.Context(), job.LockKey).Val())

		exit, out, errs = f.run("locks", "release", "--force", "Sync[42]")
		require.Zero(t, exit)
		require.Equal(t, "released locket:job_locks:Sync[42]\n", out)
		require.Contains(t, errs, "finds out with its process's next beat")
		require.Zero(t, f.redis.Exists(t.Context(), job.LockKey).Val())
	})
	t.Run("a key can be given as it is shown, however it is spelled", func(t *testing.T) {
		t.Parallel()
		f := newLockFixture(t)
		for _, key := range []string{"lock:a\x1b[2J\n", "lock:\xff\xfe", "lock:" + strings.Repeat("long ", 100)} {
			require.NoError(t, f.redis.Set(t.Context(), f.ns+":"+key, "true", 0).Err())
			_, name, _ := f.run("locks", "-o", "name")
			_, row, _ := f.run("locks", "--no-headers")
			for _, shown := range []string{strings.TrimSuffix(name, "\n"), strings.TrimSuffix(strings.TrimPrefix(strings.Split(row, "  foreign")[0], "timeout  "), "\n")} {
				exit, out, errs := f.run("locks", "show", shown)
				require.Zero(t, exit, errs)
				require.Contains(t, out, "key      lock:")
			}
			exit, _, _ := f.run("locks", "release", "--force", strings.TrimSuffix(name, "\n"))
			require.Zero(t, exit)
			require.Zero(t, f.redis.Exists(t.Context(), f.ns+":"+key).Val())
		}
	})
}

func TestForgetUnique(t *testing.T) {
	t.Parallel()
	f := newLockFixture(t)
	ctx, key := t.Context(), f.ns+":queue:once"
	require.NoError(t, f.redis.SAdd(ctx, f.ns+":queues", "once").Err())
	require.NoError(t, f.redis.RPush(ctx, key, "a", "a", "b").Err())
	require.NoError(t, f.redis.SAdd(ctx, key+":uniqueue", "a", "c").Err())
	require.NoError(t, f.redis.RPush(ctx, key+":start_at", "1").Err())

	named := filepath.Join(t.TempDir(), "resqued.yaml")
	require.NoError(t, os.WriteFile(named, []byte("unique_queues: [once]\n"), 0o600))
	exit, _, errs := f.run("--config", named, "locks", "repair", "--forget", "once")
	require.Equal(t, exitUsage, exit, errs)
	require.Contains(t, errs, "unique_queues names it")
	require.EqualValues(t, 2, f.redis.Exists(ctx, key+":uniqueue", key+":start_at").Val())

	exit, _, errs = f.run("locks", "repair", "--forget", "once")
	require.Zero(t, exit, errs)
	require.Zero(t, f.redis.Exists(ctx, key+":uniqueue", key+":start_at").Val())
	require.Equal(t, []string{"a", "a", "b"}, f.redis.LRange(ctx, key, 0, -1).Val())
}

// The content of a lock must not act on a terminal in any output format.
func TestHostileLocks(t *testing.T) {
	t.Parallel()
	f := newLockFixture(t)
	evil := "evil\x1b[2J\u009b31m\u202e\r\n\x07"
	ctx := t.Context()
	job := f.reserve(`{"class":"\u001b]0;x` + "\u009b" + `","args":["` + "\x1b\u202e" + `"]}`)
	waiting := `{"class":"A` + evil + `","args":["\u202e"]}`
	for key, value := range map[string]string{
		"lock:" + evil:                     evil,
		"lock:timed" + evil:                "1:resqued:p1#" + job.Token,
		"lock:gone" + evil:                 "true:resqued:" + evil + "#" + evil,
		"loner:lock:" + evil:               fmt.Sprintf("true:queue:%d:%s%s", len(evil), evil, waiting),
		"locket:job_locks:" + evil:         evil,
		"locket:job_locks:a" + evil:        "resqued:" + evil + "#" + evil,
		"resqued:seen:" + evil:             "1 1" + evil,
		"lock:" + strings.Repeat("k", 1e5): "true",
	} {
		require.NoError(t, f.redis.Set(ctx, f.ns+":"+key, value, 0).Err())
	}
	require.NoError(t, f.redis.SAdd(ctx, f.ns+":queues", evil).Err())
	require.NoError(t, f.redis.RPush(ctx, f.ns+":queue:"+evil, waiting, waiting).Err())
	require.NoError(t, f.redis.SAdd(ctx, f.ns+":queue:"+evil+":uniqueue", evil).Err())
	require.NoError(t, f.redis.HSet(ctx, f.ns+":locket:queue_lock_counters", evil, 1).Err())
	require.NoError(t, f.redis.SAdd(ctx, f.ns+":resqued:blocked:"+evil, job.LockKey).Err())

	verbs := [][]string{
		{"locks"},
		{"locks", "--kind", evil},
		{"locks", evil},
		{"locks", "show", "lock:" + evil, "lock:timed" + evil, "loner:lock:" + evil, "locket:job_locks:a" + evil, job.LockKey},
		{"locks", "show", "x" + evil},
		{"locks", "waiting"},
		{"locks", "unique"},
		{"locks", "unique", evil},
		{"locks", "release", "lock:" + evil, "loner:lock:" + evil, job.LockKey, "x" + evil},
		{"locks", "release", "--force", "lock:" + evil, "lock:gone" + evil, "lock:timed" + evil},
		{"locks", "repair", evil},
		{"locks", "repair", "x" + evil},
		{"locks", "repair", "--forget", evil},
		{"__complete", "locks", "show", ""},
	}
	for _, verb := range verbs {
		for _, form := range []string{outTable, outWide, outJSON, outName} {
			args := append([]string{"-o", form}, verb...)
			if verb[0] == "__complete" {
				args = append([]string{verb[0], "--redis-url", f.server.URL(), "-n", f.ns}, verb[1:]...)
			}
			_, out, errs := f.run(args...)
			for _, r := range out + errs {
				require.True(t, r == '\n' || r == '\t' && verb[0] == "__complete" || unicode.IsPrint(r), "%q -o %s wrote %q", verb, form, r)
			}
		}
	}
}
