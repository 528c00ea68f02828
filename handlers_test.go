package resqued_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func nothing(context.Context, *resqued.Job) error { return nil }

func TestHandle(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	var got mail
	resqued.Handle(h, "Mail", func(_ context.Context, m mail) error {
		got = m
		return nil
	}, resqued.Queue("mail"), resqued.Timeout(time.Minute), resqued.AtMostOnce())
	c, ok := h.Lookup("Mail")
	require.True(t, ok)
	require.Equal(t, "mail", c.Queue)
	require.Equal(t, time.Minute, c.Timeout)
	require.True(t, c.AtMostOnce)

	require.NoError(t, c.Handler(t.Context(), &resqued.Job{Args: args(`7`, `"s"`, `[]`)}))
	require.EqualValues(t, 7, got.User)

	err := c.Handler(t.Context(), &resqued.Job{Args: args(`7`)})
	require.EqualError(t, err, "arguments of Mail: got 1 argument, takes 3 (User, Subject, Copies)")
}

func TestHandleArgs(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	var got string
	h.HandleArgs("Legacy", func(_ context.Context, a resqued.Args) error {
		got = a.String()
		return resqued.Discard
	})
	c, _ := h.Lookup("Legacy")
	require.ErrorIs(t, c.Handler(t.Context(), &resqued.Job{Args: args(`{"a" :1}`)}), resqued.Discard)
	require.Equal(t, `[{"a" :1}]`, got)
}

func TestRegister(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	h.Command("Thumb", []string{"thumb", "-x"}, resqued.Queue("thumbs"))
	h.Register(resqued.Class{Name: "A", Handler: nothing})
	require.Equal(t, []string{"A", "Thumb"}, h.Classes())
	c, ok := h.Lookup("Thumb")
	require.True(t, ok)
	require.Equal(t, []string{"thumb", "-x"}, c.Command.Argv)
	require.Equal(t, "thumbs", c.Queue)
	require.False(t, c.AtMostOnce)
	_, ok = h.Lookup("thumb")
	require.False(t, ok, "names are looked up as they are spelled")

	refused := []struct {
		name  string
		class resqued.Class
		want  string
	}{
		{"a class without a name", resqued.Class{Handler: nothing}, "resqued: a class needs a name"},
		{"a class registered twice", resqued.Class{Name: "A", Handler: nothing}, `resqued: class "A" is registered twice`},
		{"a class with nothing to run", resqued.Class{Name: "B"}, `resqued: class "B" needs either a function or a command`},
		{
			"a class with two things to run",
			resqued.Class{Name: "B", Handler: nothing, Command: &resqued.Command{Argv: []string{"x"}}},
			`resqued: class "B" needs either a function or a command`,
		},
		{"a command without a program", resqued.Class{Name: "B", Command: &resqued.Command{}}, `resqued: the command of class "B" is empty`},
		{
			"a class with a negative timeout",
			resqued.Class{Name: "B", Handler: nothing, Timeout: -time.Second},
			`resqued: the timeout of class "B" is negative: -1s`,
		},
		{
			"a class that comes too often",
			resqued.Class{Name: "B", Handler: nothing, Queue: "q", Every: time.Millisecond},
			`resqued: class "B" cannot be enqueued every 1ms: use whole seconds`,
		},
		{
			"a class that never comes",
			resqued.Class{Name: "B", Handler: nothing, Queue: "q", Every: 9000 * time.Hour},
			`resqued: class "B" cannot be enqueued every 9000h0m0s: use a year at most`,
		},
		{
			"a class that comes and has no queue",
			resqued.Class{Name: "B", Handler: nothing, Every: time.Second},
			`resqued: class "B" is enqueued every 1s, and needs a Queue`,
		},
	}
	for _, tt := range refused {
		t.Run(tt.name+" panics", func(t *testing.T) {
			t.Parallel()
			require.PanicsWithValue(t, tt.want, func() { h.Register(tt.class) })
		})
	}
	t.Run("a function that is nil panics", func(t *testing.T) {
		t.Parallel()
		const want = `resqued: the function of class "B" is nil`
		require.PanicsWithValue(t, want, func() { resqued.Handle[int](h, "B", nil) })
		require.PanicsWithValue(t, want, func() { h.HandleArgs("B", nil) })
	})
	t.Run("typed handlers go the same way", func(t *testing.T) {
		t.Parallel()
		require.Panics(t, func() { resqued.Handle(h, "A", func(context.Context, int) error { return nil }) })
		require.Panics(t, func() { h.HandleArgs("A", func(context.Context, resqued.Args) error { return nil }) })
		require.Panics(t, func() { h.Command("A", []string{"x"}) })
		require.Panics(t, func() { h.Command("C", nil) })
	})
}

func TestUseAndHookKeepTheirOrder(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	var order []string
	mark := func(name string) resqued.Middleware {
		return func(next resqued.Handler) resqued.Handler {
			order = append(order, name)
			return next
		}
	}
	h.Use(mark("outer"), mark("inner"))
	h.Use(mark("innermost"))
	for _, m := range h.Middleware() {
		m(nothing)
	}
	require.Equal(t, []string{"outer", "inner", "innermost"}, order)

	h.Hook(resqued.Hooks{BeforeFork: func() { order = append(order, "first") }})
	h.Hook(resqued.Hooks{BeforeFork: func() { order = append(order, "second") }})
	for _, hooks := range h.AllHooks() {
		hooks.BeforeFork()
	}
	require.Equal(t, []string{"first", "second"}, order[3:])
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	for _, name := range []string{"*", "Mail", "Billing::*", "Billing::Refund?"} {
		h.Register(resqued.Class{Name: name, Handler: nothing})
	}
	for class, want := range map[string]string{
		"Mail": "Mail", "Other": "*", "Billing::Pay": "Billing::*", "Billing::Refund1": "Billing::Refund?", "Billing::Refund12": "Billing::*", "*": "*",
	} {
		c, ok := h.Lookup(class)
		require.True(t, ok)
		require.Equal(t, want, c.Name, class)
	}
	require.Equal(t, []string{"*", "Billing::*", "Billing::Refund?", "Mail"}, h.Classes())
	for want, c := range map[string]resqued.Class{
		`resqued: class "A*" cannot be enqueued every 1s: it is a pattern`:                             {Name: "A*", Handler: nothing, Every: time.Second, Queue: "q"},
		`resqued: a long job needs its class's own name, "A*" is a pattern`:                            {Name: "A*", Handler: nothing, Resumes: true},
		`resqued: class "A[" is not a pattern: "[" is never closed; write \[ for the character itself`: {Name: "A[", Handler: nothing},
	} {
		require.PanicsWithValue(t, want, func() { h.Register(c) })
	}
}
