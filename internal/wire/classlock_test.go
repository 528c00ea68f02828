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
			key, err := ClassLockKey(&resqued.Class{Name: "My::Job", Lock: &tt.lock}, args, RubyUpTo33)
			require.NoError(t, err)
			require.Equal(t, tt.want, key)
		})
	}
	t.Run("hashes are printed as the Ruby does that shares the locks", func(t *testing.T) {
		t.Parallel()
		key, err := ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{}}, resqued.Args{json.RawMessage(`{"k":1}`)}, Ruby34)
		require.NoError(t, err)
		require.Equal(t, `lock:A:{"k" => 1}`, key)
	})
	t.Run("what has no key is an error", func(t *testing.T) {
		t.Parallel()
		_, err := ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{Identifier: broken}}, nil, RubyUpTo33)
		require.EqualError(t, err, "key of the lock of A: no such argument")
		_, err = ClassLockKey(&resqued.Class{Name: "A", Lock: &resqued.ClassLock{Key: is("")}}, nil, RubyUpTo33)
		require.EqualError(t, err, "key of the lock of A: its Key function returned an empty key")
	})
}
