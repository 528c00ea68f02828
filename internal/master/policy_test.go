package master

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// jobOf is a reserved job of a class.
func jobOf(class, token string) store.Reserved {
	j := reserved(token, 0)
	j.Payload = []byte(`{"class":"` + class + `","args":[1]}`)
	return j
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const requeue, suspect, fail, again = store.Requeue, store.Suspect, store.Fail, store.Again
	once := store.Policy{AtMostOnce: []string{"Pay", "SendMoney"}}
	long := store.Policy{Fail: true, Resumes: []string{"Copy"}}
	away := store.Policy{Fail: true, Elsewhere: []string{"Copy"}}
	told := store.Policy{Fails: []string{"a"}, AtMostOnce: []string{"Pay"}, Resumes: []string{"Copy"}}
	everything := store.Policy{Fail: true, AtMostOnce: []string{"Pay"}}
	killed := func(j store.Reserved, requeue bool) store.Reserved {
		j.Kill = &store.KillRequest{Requeue: requeue}
		return j
	}
	blamed := func(j store.Reserved, blame int) store.Reserved {
		j.Deaths, j.Blame = blame, blame
		return j
	}
	crash := death{cause: "signal SIGSEGV", peak: 64 << 20, seen: true}
	gone := death{cause: "its lease was past"}
	const onceText, failText = "; at_most_once: it may have run, so it does not run again by itself", "; on_worker_death is fail"

	for _, tc := range []struct {
		name   string
		death  death
		policy store.Policy
		most   int
		job    store.Reserved
		want   store.Action
		text   string // part of the failure
	}{
		{"its process crashed", crash, store.Policy{}, 3, jobOf("Mail", "a"), suspect, ""},
		{"its machine is gone", gone, store.Policy{}, 3, jobOf("Mail", "a"), requeue, ""},
		{"fail: crash", crash, everything, 3, jobOf("Mail", "a"), fail, "worker process died: signal SIGSEGV; peak memory 64 MiB" + failText},
		{"fail: machine", gone, everything, 1000, jobOf("Mail", "a"), fail, "worker process died: its lease was past" + failText},
		{"fail: neighbour of a killed job", death{cause: "signal SIGKILL (timed out)", tokens: []string{"b"}}, everything, 3, jobOf("Mail", "a"), fail, failText},
		{"fail: what is not a job", gone, everything, 3, store.Reserved{Token: "a", Payload: []byte("{")}, fail, failText},
		{"fail: a person wants it back", crash, everything, 3, killed(jobOf("Mail", "a"), true), again, ""},
		{"fail: a person wants its end", crash, everything, 3, killed(jobOf("Mail", "a"), false), fail, `"error":"Job was killed"`},
		{"once: crash", crash, once, 3, jobOf("Pay", "a"), fail, "worker process died: signal SIGSEGV; peak memory 64 MiB" + onceText},
		{"once: machine", gone, once, 1000, jobOf("Pay", "a"), fail, onceText},
		{"once: neighbour of a killed job", death{tokens: []string{"b"}}, once, 3, jobOf("Pay", "a"), fail, onceText},
		{"once: it says so before fail", crash, everything, 3, jobOf("Pay", "a"), fail, onceText},
		{"once: not by max_deaths either", crash, once, 1, jobOf("Pay", "a"), fail, onceText},
		{"once: it was killed", death{killed: true}, once, 3, jobOf("Pay", "a"), fail, `"error":"Job was killed"`},
		{"once: a person wants it back", crash, once, 3, killed(jobOf("Pay", "a"), true), again, ""},
		{"once: another class", crash, once, 3, jobOf("Payment", "a"), suspect, ""},
		{"once: case counts", crash, once, 3, jobOf("pay", "a"), suspect, ""},
		{"once: as Ruby finds the class", gone, once, 3, jobOf("::Pay", "a"), fail, onceText},
		{"once: as Ruby spells the class", gone, once, 3, jobOf("send-money", "a"), fail, onceText},
		{"once: what is not a job", gone, once, 3, store.Reserved{Token: "a", Payload: []byte("{")}, requeue, ""},
		{"killed before its machine was gone", gone, told, 3, jobOf("Mail", "a"), fail, `"error":"Job was killed"`},
		{"killed, at most once", crash, told, 3, jobOf("Pay", "a"), fail, `"error":"Job was killed"`},
		{"killed, a person wants it back", gone, told, 3, killed(jobOf("Mail", "a"), true), again, ""},
		{"another one was killed", gone, told, 3, jobOf("Mail", "b"), requeue, ""},
		{"long: killed before its machine was gone", gone, told, 3, jobOf("Copy", "a"), again, ""},
		{"long: as often as it likes", crash, long, 3, blamed(jobOf("Copy", "a"), 9), suspect, ""},
		{"long: whatever on_worker_death is", gone, long, 1, blamed(jobOf("Copy", "a"), 9), requeue, ""},
		{"long: it was killed", death{killed: true, seen: true}, long, 3, jobOf("Copy", "a"), again, ""},
		{"long: it ignored its kill", death{tokens: []string{"a"}}, long, 3, jobOf("Copy", "a"), again, ""},
		{"long: a person wants its end", crash, long, 3, killed(jobOf("Copy", "a"), false), again, ""},
		{"its lock is elsewhere: a drain took too long", death{over: &overrun{"drain_timeout was over", true}}, away, 3, jobOf("Copy", "a"), requeue, ""},
		{"its lock is elsewhere: it ignored that it was lost", death{again: []string{"a"}}, away, 1, jobOf("Copy", "a"), requeue, ""},
		{"its lock is elsewhere: the job of another class", death{again: []string{"a"}}, away, 3, jobOf("Mail", "a"), store.Back, ""},
		{"long: a drain took too long", death{over: &overrun{"drain_timeout was over", true}}, long, 3, jobOf("Copy", "a"), store.Back, ""},
		{"long: it ignored that its lock was lost", death{again: []string{"a"}}, long, 3, jobOf("Copy", "a"), store.Back, ""},
		{"long: a drain took too long, and its jobs fail", death{killed: true, over: &overrun{"drain_timeout was over", false}}, long, 3, jobOf("Copy", "a"), again, ""},
		{"long: another class", gone, long, 3, jobOf("Mail", "a"), fail, failText},
		{"the third death", crash, once, 3, blamed(jobOf("Mail", "a"), 2), fail, "; death 3 of 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := tc.death.verdicts([]store.Reserved{tc.job}, deathPolicy{maxDeaths: tc.most, registered: tc.policy}, time.Now())
			require.Len(t, v, 1)
			require.Equal(t, string(tc.want), string(v[0].Action))
			require.Contains(t, string(v[0].Failure.Text), tc.text)
			if tc.want == fail {
				require.Contains(t, string(v[0].Failure.Text), `"exception":"Resque::DirtyExit"`)
			}
		})
	}

	t.Run("each job of a process gets its own verdict, and names the others", func(t *testing.T) {
		t.Parallel()
		v := crash.verdicts([]store.Reserved{jobOf("Mail", "a"), jobOf("Pay", "b"), jobOf("Thumb", "c")}, deathPolicy{maxDeaths: 3, registered: once}, time.Now())
		require.Equal(t, "sfs", string([]byte{byte(v[0].Action), byte(v[1].Action), byte(v[2].Action)}))
		require.Contains(t, string(v[1].Failure.Text), "at the same time ran Mail, Thumb")
	})

	t.Run("it is told as the cost of a kill", func(t *testing.T) {
		t.Parallel()
		v := crash.verdicts([]store.Reserved{killed(jobOf("Mail", "a"), false), jobOf("Pay", "b")}, deathPolicy{maxDeaths: 3, registered: once}, time.Now())
		require.Equal(t, 1, v[0].Kill.SiblingsLost)
	})
}

// The policy of the process that held the job applies.
func TestPolicyFollowsTheJob(t *testing.T) {
	t.Parallel()
	const far, orphaned, unknown = "far:away:7-8:0.1", "h:b:9-9:0.0", "h:b:5-5:0.0"

	bubble(t, "also how often it may die", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.MaxDeaths = 9 })
		f.up(2)
		f.redis.hold(far, jobOf("A", "a"))
		f.redis.hold(orphaned, jobOf("A", "b"))
		f.redis.set(func() {
			f.redis.orphans = []string{far, orphaned}
			f.redis.policies = map[string]store.Policy{far: {MaxDeaths: 1}, orphaned: {}}
		})
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a fail", "b requeue"}, f.redis.seen())
	})

	bubble(t, "whoever recovers it", func(t *testing.T) {
		f := setup(t, func(f *fixture, c *Config) {
			c.Policy = store.Policy{AtMostOnce: []string{"Mine"}}
			f.sys.dead = map[string]bool{"h:b:5-5": true}
			f.redis.procs = []string{unknown}
			f.redis.hold(unknown, jobOf("Mine", "fallback"), jobOf("Theirs", "free"))
		})
		require.Equal(t, []string{"fallback fail", "free requeue"}, f.redis.seen())
		up := f.up(2)
		own := up[0].spec.Proc
		f.redis.hold(far, jobOf("Theirs", "a"), jobOf("Mine", "b"))
		f.redis.hold(orphaned, jobOf("Other", "c"))
		f.redis.hold(own, jobOf("Mine", "d"), jobOf("Other", "e"))
		f.redis.set(func() {
			f.redis.orphans = []string{far, orphaned}
			f.redis.policies = map[string]store.Policy{
				far: {AtMostOnce: []string{"Theirs"}}, orphaned: {Fail: true},
				own: {AtMostOnce: []string{"Other"}}, // as it was before a reload
			}
		})
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a fail", "b requeue", "c fail"}, f.redis.seen()[2:])
		up[0].crash()
		require.Equal(t, []string{"d requeue", "e fail"}, f.redis.seen()[5:])
	})

	bubble(t, "while it cannot be asked for nothing is decided", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		name := up[0].spec.Proc
		f.redis.hold(name, jobOf("Pay", "a"))
		f.redis.set(func() {
			f.redis.noPolicy = errors.New("i/o timeout")
			f.redis.policies = map[string]store.Policy{name: {AtMostOnce: []string{"Pay"}}}
		})
		up[0].crash()
		f.wait(time.Minute)
		require.Empty(t, f.redis.seen())
		f.redis.set(func() { f.redis.noPolicy = nil })
		f.wait(longestRetry)
		require.Equal(t, []string{"a fail"}, f.redis.seen())
	})
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	sigkill := proc.Exit{Code: -1, Signal: syscall.SIGKILL, MaxRSS: 900 << 20}
	fails := func(_ *fixture, c *Config) { c.Policy.Fail = true }
	count := func(f *fixture, kills int64, where string) {
		f.sys.mu.Lock()
		defer f.sys.mu.Unlock()
		f.sys.oom = procfs.OOM{Kills: kills, Where: where}
	}
	text := func(f *fixture, c *fakeChild, e proc.Exit) string {
		f.redis.hold(c.spec.Proc, reserved("a", 0))
		before := len(f.redis.failures)
		c.die(e)
		f.redis.seen()
		require.Len(f.t, f.redis.failures, before+1)
		return f.redis.failures[before]
	}

	bubble(t, "what the kernel has just counted is told, as a hint", func(t *testing.T) {
		f := setup(t, fails, func(f *fixture, _ *Config) { count(f, 4, "its control group") })
		up := f.up(2)
		count(f, 5, "its control group")
		require.Contains(t, text(f, up[0], sigkill), `worker process died: signal SIGKILL (perhaps out of memory: `+
			`the kernel's OOM killer has just killed 1 process of its control group); peak memory 900 MiB; `)
	})

	bubble(t, "nothing is said of what was long ago, cannot be read, or did not end by SIGKILL", func(t *testing.T) {
		f := setup(t, fails, func(f *fixture, _ *Config) { count(f, 4, "this machine") })
		up := f.up(2)
		count(f, 5, "this machine")
		require.NotContains(t, text(f, up[0], proc.Exit{Code: 2}), "memory:")
		f.up(1)
		f.wait(3 * roundEvery)
		require.NotContains(t, text(f, up[1], sigkill), "memory:")
		count(f, 0, "")
		f.wait(firstDelay)
		require.NotContains(t, text(f, f.up(1)[0], sigkill), "memory:")
	})

	bubble(t, "one that its master has killed died of that", func(t *testing.T) {
		f := setup(t, fails, func(f *fixture, _ *Config) { count(f, 4, "its control group") })
		up := f.up(2)
		count(f, 5, "its control group")
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		up[0].say(proc.Message{Type: proc.Tainted, Reason: "resqued: job timed out"})
		f.redis.seen()
		require.Contains(t, f.redis.failures[0], "signal SIGKILL (resqued: job timed out)")
	})
}
