package store_test

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// rights changes those of the user of the scripts.
func (r *rig) rights(t require.TestingT, rules ...string) {
	args := []any{"ACL", "SETUSER", "model", "on", ">pw", "~*", "&*"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, r.redis.Do(r.ctx, args...).Err())
}

// refused sends a request while the user lacks the right to one command. It returns ok
// if the script did something all the same.
func (m *model) refused(t *rapid.T, req store.ExchangeRequest) (reply store.ExchangeReply, ok bool) {
	err := m.without(t, func() (err error) {
		reply, err = m.store.Exchange(m.ctx, req)
		return err
	})
	return reply, err == nil
}

// without calls a script while the user lacks the right to one command.
func (m *model) without(t *rapid.T, call func() error) error {
	command, _ := rapid.SampledFrom(store.ScriptCommands()).Draw(t, "right missing").(string)
	m.rights(t, "-acl", "-"+command)
	err := call()
	m.rights(t, "+@all")
	if err == nil {
		m.untidy = m.untidy || slices.Contains([]string{"SREM", "HDEL", "ZREM", "ZADD", "HSET", "EXISTS"}, command)
		return nil
	}
	if text := err.Error(); !strings.Contains(text, command) && !strings.Contains(text, "can't run this command") {
		t.Fatalf("without %s: %v", command, err)
	}
	m.see("right missing")
	return err
}
