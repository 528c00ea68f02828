package procfs

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func procargs(count uint32, text string) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, count), text...)
}

func TestProcargsEnviron(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data []byte
		want string
		err  bool
	}{
		"arguments and variables":   {data: procargs(2, "/bin/sleep\x00\x00\x00sleep\x00100\x00A=1\x00B=2\x00\x00stack\x00"), want: "A=1\x00B=2\x00"},
		"no variables":              {data: procargs(1, "/bin/sleep\x00\x00sleep\x00")},
		"hidden ones":               {data: procargs(1, "/bin/sleep\x00\x00sleep\x00\x00ptr=1\x00")},
		"an empty argument":         {data: procargs(2, "/bin/sleep\x00\x00sleep\x00\x00A=1\x00"), want: "A=1\x00"},
		"fewer arguments than told": {data: procargs(9, "/bin/sleep\x00\x00sleep\x00"), err: true},
		"nothing":                   {err: true},
		"no program":                {data: procargs(0, "x"), err: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, err := procargsEnviron(c.data)
			require.Equal(t, c.err, err != nil, "%v", err)
			require.Equal(t, c.want, string(env))
		})
	}
}

func FuzzProcargsEnviron(f *testing.F) {
	f.Add(procargs(2, "/bin/sleep\x00\x00sleep\x00100\x00A=1\x00B=2\x00\x00"))
	f.Add(procargs(1<<31, "\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		env, err := procargsEnviron(data)
		if err == nil && !bytes.Contains(data, env) {
			t.Fatalf("%q is not part of %q", env, data)
		}
	})
}
