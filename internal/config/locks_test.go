package config

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandlerLock(t *testing.T) {
	t.Parallel()
	t.Run("every field is read", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `
handlers:
  Graph:
    command: [graph]
    lock: {timeout: 1h, args: [0, 2], loner: true, on_locked: requeue, redis: "rediss://:pw@locks:6379/1"}
  Update: {command: [update], lock: {key: "lock:updates", on_locked: fail}}
  Wide: {command: [wide], lock: {class_wide: yes, loner: false}}
  Plain: {command: [plain], lock: {class_wide: false}}
  Empty: {command: [empty], lock: {}}
`}.mustLoad(t)
		locks := map[string]*HandlerLock{}
		for class, h := range r.Handlers {
			locks[class] = h.Lock
		}
		require.Equal(t, map[string]*HandlerLock{
			"Graph": {
				Timeout: time.Hour, Args: []int{0, 2}, Loner: true, OnLocked: "requeue",
				Redis: "rediss://:pw@locks:6379/1",
			},
			"Update": {Key: "lock:updates", OnLocked: "fail"},
			"Wide":   {ClassWide: true, OnLocked: "drop"},
			"Plain":  {OnLocked: "drop"},
			"Empty":  {OnLocked: "drop"},
		}, locks)

		text, err := json.Marshal(r.Config)
		require.NoError(t, err)
		var handed Config
		require.NoError(t, json.Unmarshal(text, &handed))
		require.Equal(t, r.Handlers, handed.Handlers, "worker processes get all of it")
	})

	t.Run("a password is not shown", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `handlers: {A: {command: [a], lock: {redis: "redis://u:pw@locks"}}}`}.mustLoad(t)
		require.Equal(t, "redis://u:xxxxx@locks", r.Redacted().Handlers["A"].Lock.Redis)
		require.Equal(t, "redis://u:pw@locks", r.Handlers["A"].Lock.Redis, "the configuration itself keeps it")
	})

	t.Run("a cluster for the locks needs a namespace of one slot", func(t *testing.T) {
		t.Parallel()
		const handlers = `handlers: {A: {command: [a], lock: {redis: "redis-cluster://a,b"}}}`
		_, err := from{yaml: handlers}.load(t)
		require.ErrorContains(t, err, `the locks of A are kept in a Redis Cluster, which needs all keys in one slot; use a hash-tagged namespace, "{resque}"`)
		from{yaml: "namespace: '{resque}'\n" + handlers}.mustLoad(t)
	})
}

func TestHandlerLockRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"a text for a lock", "on", `.lock (resqued.yaml:1): must be a map, if only {} for a lock with nothing special`},
		{"nothing for a lock", "", `.lock (resqued.yaml:1): must be a map, if only {} for a lock with nothing special`},
		{"a gem's name", "{identifier: [0]}", `.lock.identifier (resqued.yaml:1): unknown key; did you mean "args"?`},
		{"an unknown field", "{timeot: 1}", `.lock.timeot (resqued.yaml:1): unknown key; did you mean "timeout"?`},
		{"a negative timeout", "{timeout: -1}", `.lock.timeout "-1" (resqued.yaml:1): must not be negative`},
		{"one number for arguments", "{args: 0}", `.lock.args (resqued.yaml:1): must be a list of the arguments that count, from 0: [0]`},
		{"no arguments", "{args: []}", `.lock.args (resqued.yaml:1): is empty; write class_wide: true for one lock for all jobs of the class`},
		{"a name of an argument", "{args: [user]}", `.lock.args "user" (resqued.yaml:1): must be the number of an argument, 0 to 9999`},
		{"an argument before the first", "{args: [-1]}", `.lock.args "-1" (resqued.yaml:1): must be the number of an argument, 0 to 9999`},
		{"an argument twice", "{args: [1, 1]}", `.lock.args "1" (resqued.yaml:1): is there twice; keep one of them`},
		{"an empty key", "{key: ''}", `.lock.key (resqued.yaml:1): must not be empty; leave it out for a key made of class and arguments`},
		{"a template for a key", "{key: 'a:{{args.0}}'}", `.lock.key "a:{{args.0}}" (resqued.yaml:1): is one key for all jobs, not a template; args: [0] makes a key for each first argument`},
		{"two ways to a key", "{key: a, args: [0]}", `.lock (resqued.yaml:1): has key and args, which both say what the key is; keep one of them`},
		{"a whole key for a class-wide lock", "{class_wide: true, key: a}", `.lock (resqued.yaml:1): has class_wide and key, which both say what the key is; keep one of them`},
		{"a policy that nobody knows", "{on_locked: wait}", `.lock.on_locked "wait" (resqued.yaml:1): not known, one of drop, requeue, fail`},
		{"a word for a yes", "{loner: maybe}", `.lock.loner "maybe" (resqued.yaml:1): write true or false`},
		{"an address with a password in it", "{redis: 'http://:secret@a'}", `.lock.redis (resqued.yaml:1): scheme "http" is not known, one of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster, rediss-cluster`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: "handlers: {A: {command: [a], lock: " + tc.yaml + "}}"}.load(t)
			require.EqualError(t, err, "handlers.A"+tc.want)
		})
	}
}
