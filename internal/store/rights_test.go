package store_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// halfway are the scripts that a missing right may stop between two writes, with the reason why
// that does no harm. No other script may be stopped there.
var halfway = map[string]string{
	"beat":              "a process beats again",
	"classlock_acquire": "the lock names a record, and is free when that is gone",
	"drop_master":       "the entry is removed; the next look at the set of masters removes the rest",
	"fence":             "a process stays fenced; its records are read again",
	"orphans":           "what it removes is past, and what it gives its name back holds jobs",
	"put_master":        "the entry is written again with the next beat",
	"register":          "a process that could not register tries again",
	"request_kill":      "the request stands; asking again is the same",
	"restore_workers":   "workers are shown again; what a pruner has recorded stays",
	"schedules":         "the lock ends by itself",
	"sweep_queues":      "another walk begins",
}

// aside are the keys that scripts write if they may, and do without if not.
var aside = regexp.MustCompile(`^(locket:queue_lock_counters|resqued:pruned(:look)?|resqued:recent|resqued:(seen|blocked|open|longjob:slices):.*|timestamps:.*)$`)

// A script whose user lacks a right does all of its work or nothing of it. Every call of the
// probe, in which each script has its part, is tried without each of the commands in it.
func TestScriptsWithoutARight(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 7) // others cannot be asked for rights
	server := redistest.Start(t, redistest.Options{})
	r := &rightless{admin: server.Client(t)}
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "m", Lease: time.Hour, BeatEvery: time.Hour}) // no silence, however slow the machine is
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	var calls [][]any
	storetest.Intercept(s.Redis(), func(cmds []redis.Cmder, _ func() error) error {
		for _, cmd := range cmds {
			if name := cmd.Name(); name != "multi" && name != "exec" && name != "del" {
				calls = append(calls, cmd.Args())
			}
		}
		return errors.New("they are only collected")
	})
	require.ErrorContains(t, s.Probe(t.Context(), longstore.Probed()), "only collected")
	require.Greater(t, len(calls), 50)
	r.rights(t)
	r.user = redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, Username: "rightless", Password: "pw"})
	defer func() { _ = r.user.Close() }()
	// The clock stands still, or jobs become due between two tries.
	now := fmt.Sprintf(`{'%d', '0'}`, time.Now().Unix())
	frozen := strings.NewReplacer(`redis.call('TIME')`, now, `call('TIME')`, now)
	for range 2 { // the second time some jobs have died with their process
		for _, args := range calls {
			if args[0] == "eval" {
				script, _ := args[4].(string)
				script = frozen.Replace(script)
				r.try(t, script, slices.Concat([]any{"eval", script}, args[2:4], args[5:]))
			} else {
				require.NoError(t, r.admin.Do(t.Context(), args...).Err())
			}
		}
	}
}

// After a silence no lock is given until beats have looked at the locks of all. A beat that may not say
// until when leaves nothing of that.
func TestSilenceWithoutARight(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 7)
	r := storetest.NewRig(t)
	require.NoError(t, r.Store.Register(t.Context(), store.Registration{Proc: "p1", Workers: []string{"h/0.0:1:q"}, Started: "now"}))
	require.NoError(t, r.Redis.HSet(t.Context(), storetest.Space+"resqued:meta", "beat", "1000").Err())
	r.Rights(t, "-acl", "-pexpire")
	_, err := r.Store.Beat(t.Context(), store.BeatRequest{Proc: "p1"})
	require.Error(t, err)
	require.Zero(t, r.Redis.Exists(t.Context(), storetest.Space+"resqued:relock").Val())
	r.Rights(t, "+@all")
	reply, err := r.Store.Beat(t.Context(), store.BeatRequest{Proc: "p1"})
	require.NoError(t, err)
	require.Empty(t, reply.Lost)
}

// On a full server, entries that only Ruby's pages need are left out without trouble for the jobs.
func TestMirrorsOfAFullServer(t *testing.T) {
	t.Parallel()
	r := storetest.NewRig(t)
	key := storetest.Space + "resqued:inflight:p1"
	require.NoError(t, r.Redis.HSet(t.Context(), key, "1", "record").Err())
	mirrors := []store.Mirror{{Token: "1", Worker: "h:1:q", Value: []byte("{}")}}
	require.NoError(t, r.Redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.NoError(t, r.Store.WriteMirrors(t.Context(), "p1", mirrors))
	require.Zero(t, r.Redis.Exists(t.Context(), storetest.Space+"worker:h:1:q").Val())
	require.NoError(t, r.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, r.Store.WriteMirrors(t.Context(), "p1", mirrors))
	require.Equal(t, "{}", r.Redis.Get(t.Context(), storetest.Space+"worker:h:1:q").Val())
}

// rightless is a user who loses rights.
type rightless struct{ admin, user *redis.Client }

func (r *rightless) rights(t *testing.T, rules ...any) {
	t.Helper()
	require.NoError(t, r.admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "rightless", "on", ">pw", "~*", "&*", "+@all", "-acl"}, rules...)...).Err())
}

var (
	commandsOf = regexp.MustCompile(`(?:call_?|query)\('([A-Z]+)'`)
	nameOf     = regexp.MustCompile(`(?m)^-- ([a-z_]+) .*\n(?:--.*\n)*-- RETURNS`)
)

// try makes one call, on the same data without each of its commands first.
func (r *rightless) try(t *testing.T, script string, call []any) {
	t.Helper()
	name := nameOf.FindStringSubmatch(script)[1]
	switch key, _ := call[3].(string); name { // so that there is something to remove or to move
	case "dequeue":
		require.NoError(t, r.admin.RPush(t.Context(), key, call[len(call)-1]).Err())
	case "move_jobs":
		require.NoError(t, r.admin.RPush(t.Context(), key, call[len(call)-2]).Err())
	case "move_out":
		require.NoError(t, r.admin.RPush(t.Context(), key, call[len(call)-1]).Err())
	case "move_end":
		require.NoError(t, r.admin.RPush(t.Context(), key, "{}").Err())
		require.NoError(t, r.admin.HSet(t.Context(), strings.TrimSuffix(key, ":plain"), "n:plain", "1").Err())
	case "remove_lock": // a queue is looked at again, and a line is served
		if kind, _ := call[5].(string); kind == "locket" {
			space, name, _ := strings.Cut(key, "locket:job_locks:")
			require.NoError(t, r.admin.Set(t.Context(), key, "resqued:gone#1", 0).Err())
			require.NoError(t, r.admin.HSet(t.Context(), space+"locket:queue_lock_counters", "plain", "1").Err())
			require.NoError(t, r.admin.Set(t.Context(), space+"resqued:seen:plain", "1 9000000000000 1 1", 0).Err())
			require.NoError(t, r.admin.SAdd(t.Context(), space+"resqued:blocked:plain", key).Err())
			require.NoError(t, r.admin.HSet(t.Context(), space+"resqued:awaited", name, "5 plain").Err())
		} else {
			space, _, _ := strings.Cut(key, "lock:")
			require.NoError(t, r.admin.Set(t.Context(), key, "true:resqued:gone#1", 0).Err())
			require.NoError(t, r.admin.HSet(t.Context(), space+"resqued:held:gone", "1", fmt.Sprintf("%d 1\n%sx", len(key), key)).Err())
		}
	case "move_suspects":
		require.NoError(t, r.admin.RPush(t.Context(), key, "- {}").Err())
	}
	saved, before := r.save(t), r.look(t)
	require.NoError(t, r.run(t, call), name)
	result, after := r.save(t), r.look(t)
	var commands []string
	for _, match := range commandsOf.FindAllStringSubmatch(script, -1) {
		commands = append(commands, match[1])
	}
	slices.Sort(commands)
	for _, command := range slices.Compact(commands) {
		r.restore(t, saved)
		r.rights(t, "-"+command)
		err := r.run(t, call)
		r.rights(t)
		now := r.look(t)
		require.False(t, rdb.WrongType(err), "%s without %s blames a key: %v", name, command, err)
		if err != nil && halfway[name] == "" {
			require.Empty(t, changed(before, now), "%s without %s: %v", name, command, err)
		} else if err == nil && len(changed(before, now)) > 0 {
			missing := slices.DeleteFunc(changed(after, now), aside.MatchString)
			require.Empty(t, missing, "%s without %s has done a part of its work", name, command)
		}
	}
	r.restore(t, result)
}

func (r *rightless) run(t *testing.T, call []any) error {
	t.Helper()
	if err := r.user.Do(t.Context(), call...).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

var longNumber = regexp.MustCompile(`[0-9]{9,}`)

// look returns what each key holds, without times and fences.
func (r *rightless) look(t *testing.T) map[string]string {
	t.Helper()
	list, err := r.admin.Eval(t.Context(), storetest.DumpScript, nil).Slice()
	require.NoError(t, err)
	out := map[string]string{}
	for _, entry := range list {
		fields, _ := entry.([]any)
		var values []string
		held, _ := fields[3].([]any)
		for _, v := range held {
			values = append(values, longNumber.ReplaceAllString(fmt.Sprint(v), "#"))
		}
		slices.Sort(values)
		key := strings.TrimPrefix(fmt.Sprint(fields[0]), "m:resqued:probe:")
		out[longNumber.ReplaceAllString(key, "#")] = strings.Join(values, "\x00")
	}
	return out
}

// changed returns the keys that differ, sorted.
func changed(before, after map[string]string) (keys []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for key := range all {
		was, there := before[key]
		is, still := after[key]
		if was != is || there != still {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// save returns everything, for restore.
func (r *rightless) save(t *testing.T) []any {
	t.Helper()
	list, err := r.admin.Eval(t.Context(), `local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  out[#out + 1], out[#out + 2], out[#out + 3] = key, math.max(0, redis.call('PTTL', key)), redis.call('DUMP', key)
end
return out`, nil).Slice()
	require.NoError(t, err)
	return list
}

func (r *rightless) restore(t *testing.T, saved []any) {
	t.Helper()
	require.NoError(t, r.admin.Eval(t.Context(), `redis.call('FLUSHALL')
for i = 1, #ARGV, 3 do redis.call('RESTORE', ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return 1`, nil, saved...).Err())
}
