package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// values holds one value of each kind that a server sends.
var values = []string{
	"+OK\r\n", "-ERR no\r\n", ":-42\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nbc\r\n",
	"*0\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
	"_\r\n", "#t\r\n", ",3.14\r\n", ",inf\r\n", "(3492890328409238509324850943850943825024385\r\n",
	"!8\r\nERR a\r\nb\r\n", "=7\r\ntxt:abc\r\n", "%1\r\n+k\r\n%0\r\n", "~2\r\n:1\r\n:2\r\n",
	">2\r\n+message\r\n$1\r\nx\r\n", "|1\r\n+ttl\r\n:3600\r\n*1\r\n+value\r\n",
}

func TestReadValue(t *testing.T) {
	t.Parallel()
	t.Run("every kind of value is read to its end", func(t *testing.T) {
		t.Parallel()
		stream := strings.Join(values, "")
		for name, source := range map[string]io.Reader{
			"at once":      strings.NewReader(stream),
			"byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
		} {
			r := bufio.NewReaderSize(source, 16)
			for _, want := range values {
				got, kind, err := readValue(r, nil)
				require.NoError(t, err, "%s: %q", name, want)
				require.Equal(t, want, string(got), name)
				if want[0] != '|' {
					require.Equal(t, want[0], kind)
				}
			}
			_, _, err := readValue(r, nil)
			require.Equal(t, io.EOF, err)
		}
	})

	t.Run("an attribute has the kind of its value", func(t *testing.T) {
		t.Parallel()
		_, kind, err := readValue(bufio.NewReader(strings.NewReader("|1\r\n+a\r\n:1\r\n>1\r\n+p\r\n")), nil)
		require.NoError(t, err)
		require.Equal(t, byte('>'), kind)
	})

	t.Run("what is cut off is not a clean end", func(t *testing.T) {
		t.Parallel()
		for _, value := range values {
			for cut := 1; cut < len(value); cut++ {
				_, _, err := readValue(bufio.NewReader(strings.NewReader(value[:cut])), nil)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", value[:cut])
			}
		}
	})

	t.Run("what is not RESP is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"\r\n", "x\r\n", "+OK\n", "$x\r\n", "$-2\r\n", "$+1\r\na\r\n", "$1\r\nabc\r\n", "*-2\r\n", "%-1\r\n",
			"$?\r\n", "*99999999999999999999\r\n", strings.Repeat("*1\r\n", maxDepth+2),
		} {
			_, _, err := readValue(bufio.NewReader(strings.NewReader(text)), nil)
			require.ErrorIs(t, err, ErrProtocol, "%q", text[:min(len(text), 20)])
		}
	})
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Request{
		"*4\r\n$7\r\nevalsha\r\n$3\r\nabc\r\n$1\r\n0\r\n$1\r\nx\r\n": {Name: "EVALSHA", Arg: "abc"},
		"*4\r\n$4\r\nEVAL\r\n$3\r\nabc\r\n$1\r\n1\r\n$3\r\nk:1\r\n":  {Name: "EVAL", Arg: "abc", Key: "k:1"},
		"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n$2\r\nEX\r\n":      {Name: "SET", Arg: "k"},
		"*1\r\n$4\r\nEXEC\r\n": {Name: "EXEC"},
		"ping hello\r\n":       {Name: "PING", Arg: "hello"},
		"QUIT\n":               {Name: "QUIT"},
		"*0\r\n":               {},
		"\r\n":                 {},
	} {
		r := bufio.NewReader(strings.NewReader(raw + "rest"))
		got, request, err := readRequest(r, nil)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, raw, string(got))
		require.Equal(t, want, request, "%q", raw)
		rest, _ := io.ReadAll(r)
		require.Equal(t, "rest", string(rest))
	}
}

// FuzzReadValue checks that no bytes are lost or invented, and that the end of a value depends
// on its bytes alone, not on how they arrive.
func FuzzReadValue(f *testing.F) {
	for _, value := range values {
		f.Add([]byte(value))
	}
	f.Add([]byte(strings.Join(values, "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, err := readAll(bytes.NewReader(data), 4096)
		parts, again := readAll(iotest.OneByteReader(bytes.NewReader(data)), 16)
		require.Equal(t, whole, parts)
		require.Equal(t, err == nil, again == nil)
		joined := bytes.Join(whole, nil)
		require.True(t, bytes.HasPrefix(data, joined))
		if err == nil {
			require.Equal(t, len(data), len(joined))
		}
		for _, value := range whole {
			got, _, err := readValue(bufio.NewReader(bytes.NewReader(value)), nil)
			require.NoError(t, err)
			require.Equal(t, value, got)
		}
	})
}

// FuzzReadRequest checks the same for requests.
func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("ping\r\n*1\r\n$4\r\nPING\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(data)), 16)
		var joined []byte
		for {
			raw, request, err := readRequest(r, nil)
			if err != nil {
				break
			}
			require.NotEmpty(t, raw)
			require.LessOrEqual(t, len(request.Name), 3*maxWord) // upper case may be longer
			joined = append(joined, raw...)
		}
		require.True(t, bytes.HasPrefix(data, joined))
	})
}

func readAll(r io.Reader, size int) (all [][]byte, err error) {
	buffered := bufio.NewReaderSize(r, size)
	for {
		value, _, err := readValue(buffered, nil)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, value)
	}
}
