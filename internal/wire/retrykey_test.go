package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// The keys are those of resque-retry 1.8.1, their sums as Ruby computes them.
func TestRetryKey(t *testing.T) {
	t.Parallel()
	args := func(text string) resqued.Args {
		e, err := Parse([]byte(`{"class":"A","args":`+text+`}`), 0)
		require.NoError(t, err)
		return e.Args
	}
	for text, want := range map[string]string{
		`[]`:             "resque-retry:A",
		`[null]`:         "resque-retry:A",
		`[""]`:           "resque-retry:A",
		`[1]`:            "resque-retry:A:356a192b7913b04c54574d18c28d46e6395428ab",
		`["1"]`:          "resque-retry:A:356a192b7913b04c54574d18c28d46e6395428ab",
		`[1,[2,null],3]`: "resque-retry:A:6819c5124683584335fa3bbf803f8fa081d91e8e",
		`["a b"]`:        "resque-retry:A:7dbde93504122a707f849f2c12bdd9de71b41929",
		`["é",1.0,true]`: "resque-retry:A:43ffa3cd9bfdf410a01a83549a2047ded0fc4be0",
		`[{"a":1}]`:      "resque-retry:A:74e70f6487a1f3bc358cf155058e625ad786257c",
	} {
		key, err := RetryKey("A", args(text), RubyUpTo33)
		require.NoError(t, err)
		require.Equal(t, want, key, text)
	}
	key, err := RetryKey("My::Job \t\n\v\f\rof\u0085", args(`[{"a":1}]`), Ruby34)
	require.NoError(t, err)
	require.Equal(t, "resque-retry:My::Jobof\u0085:342fb50929094725e6fa3d1f9d5c8dad72bf68e2", key)
	_, err = RetryKey("A", resqued.Args{[]byte("{")}, Ruby34)
	require.Error(t, err)
}

func TestRetryKeys(t *testing.T) {
	t.Parallel()
	e, err := Parse([]byte(`{"class":"send-mail","args":[]}`), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"resque-retry:send-mail", "resque-retry:SendMail"}, RetryKeys(e))
	e, err = Parse([]byte(`{"class":"A","args":[{"a":1}]}`), 0)
	require.NoError(t, err)
	require.Equal(t, []string{
		"resque-retry:A:74e70f6487a1f3bc358cf155058e625ad786257c", "resque-retry:A:342fb50929094725e6fa3d1f9d5c8dad72bf68e2",
	}, RetryKeys(e))
}
