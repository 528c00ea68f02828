package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/control"
)

func TestHealthOfStores(t *testing.T) {
	t.Parallel()
	running := control.StoreReply{Store: "a", State: "running", Ready: 1, Text: "running, 1 worker"}
	for _, c := range []struct {
		name   string
		reply  control.Reply
		args   []string
		want   int
		output string
	}{
		{"all work", control.Reply{State: "running", Ready: 2, Stores: []control.StoreReply{running, {Store: "b", State: "paused", Ready: 1}}}, nil, exitOK, "healthy: "},
		{
			"one drains alone",
			control.Reply{State: "running", Ready: 2, Text: "a: …; b: …", Stores: []control.StoreReply{running, {Store: "b", State: "draining", Ready: 1, Text: "draining, 1 worker"}}},
			nil, exitUnhealthy, "unhealthy: process 7: store b: draining, 1 worker; all: a: …; b: …",
		},
		{
			"no worker process of one is ready",
			control.Reply{State: "running", Ready: 1, Stores: []control.StoreReply{running, {Store: "b", State: "running", Text: "running, 0 workers"}}},
			nil, exitUnhealthy, "store b: running, 0 workers",
		},
		{
			"one that is no more finishes its jobs",
			control.Reply{State: "running", Ready: 1, Stores: []control.StoreReply{running, {Store: "b", State: "draining", Leaving: true}}},
			nil, exitOK, "healthy: ",
		},
		{
			"an answer is enough",
			control.Reply{State: "running", Stores: []control.StoreReply{{Store: "b", State: "draining"}}},
			[]string{"--alive"},
			exitOK, "healthy: ",
		},
		{"the one that a daemon works alone", control.Reply{State: "running", Ready: 1, Store: "b"}, []string{"--store", "b"}, exitOK, "healthy: "},
		{"another one than that", control.Reply{State: "running", Ready: 1, Store: "b"}, []string{"--store", "a"}, exitNotFound, `the daemon has no store "a" (--store)`},
		{"one of none", control.Reply{State: "running", Ready: 1}, []string{"--store", "a"}, exitNotFound, `the daemon has no store "a" (--store)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.reply.OK, c.reply.PID = true, 7
			path := answering(t, func(context.Context, control.Request) control.Reply { return c.reply })
			stdout, stderr, code := newHost(t, nil).run(t, nil, append([]string{"health", "--socket", path}, c.args...)...)
			require.Equal(t, c.want, code, stdout+stderr)
			require.Contains(t, stdout+stderr, c.output)
		})
	}
}
