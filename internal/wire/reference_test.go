package wire

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParts(t *testing.T) {
	t.Parallel()
	failure := func(payload string) Failure {
		return Failure{Payload: []byte(payload), Exception: "E", Error: "no", Worker: "w", Queue: "q"}
	}
	reference := func(record []byte) Reference {
		t.Helper()
		f, err := ParseFailure(record)
		require.NoError(t, err)
		require.Equal(t, "no", f.Error)
		e, err := Parse(f.Payload, 0)
		require.NoError(t, err)
		r, ok := ReferenceOf(e)
		require.True(t, ok)
		return r
	}

	t.Run("a record with a small payload is whole", func(t *testing.T) {
		t.Parallel()
		for _, payload := range []string{`{"class":"A","args":[]}`, "no payload", ""} {
			text, gap, ref := failure(payload).Parts("p#1")
			require.Equal(t, failure(payload).Encode(), text)
			require.Zero(t, gap)
			require.Nil(t, ref)
		}
	})

	t.Run("a large payload is put in by who has it", func(t *testing.T) {
		t.Parallel()
		payload := `{"class":"A","args":["` + strings.Repeat("x", maxInline) + `"]}`
		text, gap, ref := failure(payload).Parts("p#1")
		require.Less(t, len(text), 1000)
		require.Equal(t, failure(payload).Encode(), []byte(string(text[:gap])+payload+string(text[gap:])))
		sum := sha1.Sum([]byte(payload))
		require.Equal(t, Reference{ID: "p#1", Size: int64(len(payload)), SHA1: hex.EncodeToString(sum[:]), Class: "A"}, reference(ref))
	})

	t.Run("large bytes that are not a payload stand in no record", func(t *testing.T) {
		t.Parallel()
		text, gap, ref := failure(strings.Repeat("x", maxInline+1)).Parts("p#1")
		require.Nil(t, text)
		require.Zero(t, gap)
		require.Empty(t, reference(ref).Class)
	})

	t.Run("no record that is sent is larger than every Redis takes", func(t *testing.T) {
		t.Parallel()
		bad := strings.Repeat("\x01", 1<<20)
		f := failure(strings.Repeat("\x01", maxInline))
		f.Error, f.Exception = bad, bad
		for range 1000 {
			f.Backtrace = append(f.Backtrace, bad)
		}
		text, _, _ := f.Parts("p#1")
		require.Less(t, len(text), 1<<20)
		_, err := ParseFailure(text)
		require.NoError(t, err)
		f.Payload = []byte(`{"class":"A","args":[` + strings.Repeat(" ", 2<<20) + `]}`)
		text, _, ref := f.Parts("p#1")
		require.Less(t, max(len(text), len(ref)), 1<<20)
		require.True(t, bytes.HasSuffix(ref, []byte(`"queue":"q"}`)))
	})

	t.Run("what only looks like a reference is a job", func(t *testing.T) {
		t.Parallel()
		for _, payload := range []string{
			`{"class":"Resqued::LargePayload","args":[]}`, `{"class":"Resqued::LargePayload","args":["",1,"",""]}`,
			`{"class":"Resqued::LargePayload","args":[1,1,"",""]}`, `{"class":"A","args":["p#1",1,"",""]}`,
		} {
			e, err := Parse([]byte(payload), 0)
			require.NoError(t, err)
			_, ok := ReferenceOf(e)
			require.False(t, ok, payload)
		}
	})
}
