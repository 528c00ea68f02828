package longstore_test

import (
	"errors"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// longErrors maps the replies of scripts that did nothing.
var longErrors = map[string]error{
	"GONE": longstore.ErrGone, "OVER": longstore.ErrOver, "STALE": longstore.ErrStale, "BUSY": longstore.ErrBusy, "BEHIND": longstore.ErrBehind,
	"LOST": longstore.ErrSuperseded, "SUPERSEDED": longstore.ErrSuperseded, "LEASE": longstore.ErrLease,
	"ENDING": longstore.ErrEnding, "MOVED": longstore.ErrStale, "NEWER": longstore.ErrNewer,
	"RUNS": longstore.ErrNotPaused,
}

// longCommands are what the scripts of long jobs need. Each is missing now and then.
var longCommands = []string{
	"hset", "hdel", "persist", "del", "zadd", "zrem", "rpush", "lpush", "sadd", "hget", "hmget", "hexists", "hgetall", "hlen", "zcard", "zscore",
	"exists", "llen", "scard", "zrangebyscore", "lset", "unlink",
}

// do calls a script, sometimes on a server that refuses something. It returns false if the call
// was refused and nothing has changed. A full server must not refuse calls that end something.
func (m *longModel) do(t *rapid.T, ends bool, call func() error) (err error, done bool) {
	trouble := rapid.SampledFrom([]string{"", "", "", "", "", "", "", "", "", "full", "right missing", "wrong type"}).Draw(t, "trouble")
	if trouble == "right missing" && !m.AsksRights {
		trouble = ""
	}
	command := ""
	m.begins()
	switch trouble {
	case "full":
		storetest.Must(t, m.Redis.ConfigSet(m.Ctx, "maxmemory", "1").Err())
		err = call()
		storetest.Must(t, m.Redis.ConfigSet(m.Ctx, "maxmemory", "0").Err())
	case "right missing":
		command = rapid.SampledFrom(longCommands).Draw(t, "command")
		m.Rights(t, "-acl", "-"+command)
		err = call()
		m.Rights(t, "+@all")
	case "wrong type":
		err = m.mistyped(t, call)
	default:
		err = call()
	}
	if err == nil {
		return nil, true
	}
	m.unchanged(t, err)
	for _, known := range longErrors {
		if errors.Is(err, known) {
			return err, true
		}
	}
	text := err.Error()
	if trouble == "" || trouble == "full" && ends || command != "" && !strings.Contains(strings.ToLower(text), command) && !strings.Contains(text, "can't run this command") {
		t.Fatalf("%s %s: %v", trouble, command, err)
	}
	m.See(trouble)
	return err, false
}

// mistyped calls a script while something else than it should stands under a key.
func (m *longModel) mistyped(t *rapid.T, call func() error) error {
	keys := []string{
		"resqued:delayed", "queue:u", "queue:q", "queue:low", "resqued:longjob:active", "resqued:longjob:ended", "resqued:longjob:current",
	}
	if r := m.anyRun(t); r != nil && !m.forgetting && rapid.Bool().Draw(t, "of a run") {
		keys = []string{"resqued:longjob:run:" + r.uuid, "resqued:longjob:state:" + r.uuid}
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	_, there := m.now[key]
	if there {
		storetest.Must(t, m.Redis.Rename(m.Ctx, storetest.Space+key, "aside").Err())
	}
	storetest.Must(t, m.Redis.Set(m.Ctx, storetest.Space+key, "x", 0).Err())
	err := call()
	value, gone := m.Redis.Get(m.Ctx, storetest.Space+key).Result()
	storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+key).Err())
	if there && gone == nil {
		storetest.Must(t, m.Redis.Rename(m.Ctx, "aside", storetest.Space+key).Err())
	}
	storetest.Must(t, m.Redis.Del(m.Ctx, "aside").Err())
	// The state of a run is removed whatever its type.
	if value != "x" && !strings.Contains(key, ":state:") {
		t.Fatalf("%s was overwritten", key)
	}
	return err
}

func (m *longModel) unchanged(t *rapid.T, why any) {
	after := m.Look(t)
	if after.Same(m.now, func(string) bool { return false }) {
		return
	}
	for key, e := range m.now {
		if slices.Equal(after[key].Values, e.Values) {
			delete(after, key)
			delete(m.now, key)
		}
	}
	t.Fatalf("%v, and something has changed:\n%v\n%v", why, m.now, after)
}

// answered reports whether a call has come to what it should; "" = it has done its work.
func (m *longModel) answered(t *rapid.T, what string, err error, want string) (ok bool) {
	if want == "" && err != nil || want != "" && !errors.Is(err, longErrors[want]) {
		t.Fatalf("%s: %v, should be %q", what, err, want)
	}
	if want == "" {
		want = "OK"
	}
	m.See(what + " " + want)
	return err == nil
}
