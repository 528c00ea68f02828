package store_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// refused sends a request while the user lacks the right to one command. It returns ok
// if the script did something anyway.
func (m *model) refused(t *rapid.T, req store.ExchangeRequest) (reply store.ExchangeReply, ok bool) {
	err := m.without(t, func() (err error) {
		reply, err = m.Store.Exchange(m.Ctx, req)
		return err
	})
	return reply, err == nil
}

// without calls a script while the user lacks the right to one command, on a server that can
// be asked for rights.
func (m *model) without(t *rapid.T, call func() error) error {
	if !m.AsksRights {
		return call()
	}
	command := rapid.SampledFrom(storetest.Commands()).Draw(t, "right missing")
	m.Rights(t, "-acl", "-"+command)
	err := call()
	m.Rights(t, "+@all")
	if err == nil {
		m.untidy = m.untidy || slices.Contains([]string{"SREM", "HDEL", "ZREM", "ZADD", "HSET", "EXISTS"}, command)
		return nil
	}
	// Before Redis 7.2 the answer has the command in the letters of the script.
	if text := err.Error(); !strings.Contains(strings.ToUpper(text), command) && !strings.Contains(text, "can't run this command") {
		t.Fatalf("without %s: %v", command, err)
	}
	m.See("right missing")
	return err
}
