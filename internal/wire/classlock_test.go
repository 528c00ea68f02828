package wire

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestClassLockKey(t *testing.T) {
	t.Parallel()
	is := func(text string) func(resqued.Args) (string, error) {
		return func(resqued.Args) (string, error) { return text, nil }
	}
	broken := func(resqued.Args) (string, error) { return "", errors.New("no such argument") }
	for _, tt := range []struct {
		name string
		lock resqued.ClassLock
		args string
		want string
	}{
		{"all arguments make the identifier", resqued.ClassLock{}, `[1,"a b",[2,[null,true]],{"k":1.0}]`, `lock:My::Job:1-a b-2--true-{"k"=>1.0}`},
		{"no arguments leave the colon", resqued.ClassLock{}, `[]`, "lock:My::Job:"},
		{"an identifier", resqued.ClassLock{Identifier: is("x")}, `[1]`, "lock:My::Job:x"},
		{"an empty identifier leaves the colon", resqued.ClassLock{Identifier: is("")}, `[1]`, "lock:My::Job:"},
		{"no identifier at all", resqued.ClassLock{ClassWide: true}, `[1]`, "lock:My::Job"},
		{"a whole key", resqued.ClassLock{Key: is("updates")}, `[1]`, "updates"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var args resqued.Args
			require.NoError(t, json.Unmarshal([]byte(tt.args), &args))
			key, err := ClassLockKey(&resqued.Class{Name: "My::Job", Lock: &tt.lock}, "::My::Job", args, RubyUpTo33)
			require.NoError(t, err)
			require.Equal(t, tt.want, key)
		})
	}
	t.Run("hashes are printed as the Ruby does that shares the locks", func(t *testing.T) {
		t.Parallel()
		key, err := ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{}}, "A", resqued.Args{json.RawMessage(`{"k":1}`)}, Ruby34)
		require.NoError(t, err)
		require.Equal(t, `lock:A:{"k" => 1}`, key)
	})
	t.Run("what has no key is an error", func(t *testing.T) {
		t.Parallel()
		_, err := ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{Identifier: broken}}, "A", nil, RubyUpTo33)
		require.EqualError(t, err, "key of the lock of A: no such argument")
		_, err = ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{Key: is("")}}, "A", nil, RubyUpTo33)
		require.EqualError(t, err, "key of the lock of A: its Key function returned an empty key")
	})
}

func TestClassLockKeyOfPatterns(t *testing.T) {
	t.Parallel()
	key := func(class string, lock resqued.ClassLock, name string) string {
		text, err := ClassLockKey(&resqued.Class{Name: class, Lock: &lock}, name, resqued.Args{json.RawMessage("1")}, RubyUpTo33)
		require.NoError(t, err)
		return text
	}
	require.Equal(t, "lock:Mail:1", key("*", resqued.ClassLock{}, "Mail"), "it is that of the job's class")
	require.Equal(t, "lock:Mail", key("M*", resqued.ClassLock{ClassWide: true}, "Mail"))
	require.Equal(t, "lock:Mail:1", key("*", resqued.ClassLock{}, "::Mail"), "whichever way it is spelled")
	require.Equal(t, "lock:SendMail:1", key("*", resqued.ClassLock{}, "send-mail"))
	require.Equal(t, "lock:SendMail:1", key("SendMail", resqued.ClassLock{}, "send-mail"))
}

func TestClassIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list  []string
		class string
		want  bool
	}{
		{nil, "A", false},
		{[]string{"A"}, "A", true},
		{[]string{"A"}, "::A", true},
		{[]string{"B"}, "A", false},
		{[]string{"*"}, "A", true},
		{[]string{"*", "!A"}, "A", false},
		{[]string{"*", "!A"}, "::A", false},
		{[]string{"*", "!A"}, "B", true},
		{[]string{"*", "!Billing::*", "Billing::Refund*"}, "Billing::Pay", false},
		{[]string{"*", "!Billing::*", "Billing::Refund*"}, "Billing::RefundAll", true},
		{[]string{"*", "!Billing::*", "Billing::Pay"}, "::Billing::Pay", true},
		{[]string{"Billing::*"}, "::Billing::Pay", true},
		{[]string{"SendM*"}, "send-mail", true},
		{[]string{"!A"}, "A", false},
	} {
		require.Equal(t, tt.want, ClassIn(tt.list, tt.class), "%q in %q", tt.class, tt.list)
	}
}
