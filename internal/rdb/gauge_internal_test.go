package rdb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGauge cuts streams of answers anywhere: what the gauge says of them does not depend
// on that.
func TestGauge(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("\n", n)) }
	// each answer is whole by itself
	answers := []string{
		"+OK\r\n", "-ERR no such thing\r\n", ":-5\r\n", ",1.5\r\n", "#t\r\n", "_\r\n", "(123456789012345678901234567890\r\n",
		"$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "*0\r\n", "%0\r\n", text(1), text(100000), text(2 << 20),
		"=8\r\ntxt:1234\r\n", "!3\r\nERR\r\n", "*2\r\n:1\r\n*2\r\n$1\r\n$\r\n*0\r\n", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "~1\r\n+a\r\n", ">2\r\n+message\r\n" + text(3),
		"|1\r\n+ttl\r\n:5\r\n*1\r\n" + text(5), "*3\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n:3\r\n", "*1\r\n*1\r\n*1\r\n*0\r\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		var stream strings.Builder
		for _, a := range rapid.SliceOfN(rapid.SampledFrom(answers), 1, 20).Draw(t, "answers") {
			stream.WriteString(a)
		}
		bad := rapid.SampledFrom([]string{"", "*1000000000\r\n", "$600000000\r\n", "HTTP/1.1 400 Bad Request\r\n", "\r\n", "*x\r\n", "$\r\n", "*99999999999999999999\r\n", "$?\r\n", strings.Repeat("*1\r\n", maxDepth+1), "+" + strings.Repeat("x", maxLine+1)}).Draw(t, "then")
		all := stream.String()
		g := &gauge{share: &share{}}
		for rest := all; rest != ""; {
			n := rapid.IntRange(1, min(len(rest), rapid.SampledFrom([]int{3, 40, 1 << 22}).Draw(t, "about"))).Draw(t, "part")
			if err := g.take([]byte(rest[:n])); err != nil {
				t.Fatalf("%v, before %.40q", err, rest)
			}
			rest = rest[n:]
		}
		if g.depth != 0 || g.skip != 0 || g.line != 0 || g.bytes != 0 || g.elements != 0 || g.share.bytes.Load() != 0 {
			t.Fatalf("something is left after whole answers: %+v", g.left[:g.depth])
		}
		var err error
		for i := 0; i < len(bad) && err == nil; i++ {
			err = g.take([]byte{bad[i]})
		}
		if (err != nil) != (bad != "") {
			t.Fatalf("%.40q: %v", bad, err)
		}
	})
}

func TestGaugeSharesMemory(t *testing.T) {
	t.Parallel()
	s := &share{}
	one, two, three := &gauge{share: s}, &gauge{share: s}, &gauge{share: s}
	require.NoError(t, one.take([]byte("*2\r\n$500000000\r\n")))
	require.NoError(t, two.take([]byte("$500000000\r\n")))
	require.ErrorContains(t, three.take([]byte("$500000000\r\n")), "1073741824 is the most")
	three.forget(true)
	require.EqualValues(t, 1000000004, s.bytes.Load())
	two.forget(true)
	three = &gauge{share: s}
	require.NoError(t, three.take([]byte("$500000000\r\n")))
	one.forget(true)
	three.forget(true)
	require.NoError(t, one.count(1<<20), "a closed one counts nothing")
	require.Zero(t, s.bytes.Load())
}
