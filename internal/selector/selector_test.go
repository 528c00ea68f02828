package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, spec string, threads int) Spec {
	t.Helper()
	s, _, err := Parse(strings.Split(spec, ","), threads)
	require.NoError(t, err)
	return s
}

// plan writes choices the way the tests below spell them: "a b:4".
func plan(choices []Choice) string {
	var out []string
	for _, c := range choices {
		if c.Cap > 0 {
			out = append(out, fmt.Sprintf("%s:%d", c.Queue, c.Cap))
		} else {
			out = append(out, c.Queue)
		}
	}
	return strings.Join(out, " ")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, spec, known, want string }{
		{"names keep their order", "critical,mail,bulk", "", "critical mail bulk"},
		{"names are there whether known or not", "critical,mail", "mail other", "critical mail"},
		{"a star is every known queue, in alphabetical order", "*", "c a b", "a b c"},
		{"a star also matches a leading dot", "*", ".hidden a", ".hidden a"},
		{"nothing known leaves a star empty", "*", "", ""},
		{"a name before a star comes first and once", "mail,*", "a mail z", "mail a z"},
		{"a name after a star that took it is not repeated", "*,mail", "a mail z", "a mail z"},
		{"a name after a star is there even if unknown", "*,mail", "a z", "a z mail"},
		{"globs are taken in their own order", "z*,a*", "a1 z1 a2 z2", "z1 z2 a1 a2"},
		{"an exclusion holds wherever it stands", "!low,*,!img_*", "a img_1 low z", "a z"},
		{"an exclusion leaves names of other globs alone", "high,img_*,!img_2", "high img_1 img_2", "high img_1"},
		{"caps follow their queue", "critical:2,mail:8", "", "critical:2 mail:8"},
		{"a cap of a glob holds for each queue that it matches", "mail_*:4,*", "mail_a mail_b x", "mail_a:4 mail_b:4 x"},
		{"the first match decides the cap", "mail_a:2,mail_*:4", "mail_a mail_b", "mail_a:2 mail_b:4"},
		{"a share is taken of all threads", "reports:25%,*:50%", "a reports", "reports:16 a:32"},
		{"a queue known twice is planned once", "*", "a a b b", "a b"},
		{"a queue that looks like an exclusion is matched by a star", "*", "!x *", "!x *"},
		{"a name with a colon is a name", "a:b", "", "a:b"},
		{"what has a key of a unique queue is not a queue", "*,a:*", "a a:b a:start_at a:uniqueue", "a a:b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, tc.spec, 64).Resolve(strings.Fields(tc.known))
			require.Equal(t, tc.want, plan(got))
		})
	}

	t.Run("the list of known queues is not changed", func(t *testing.T) {
		t.Parallel()
		known := []string{"c", "a", "b"}
		parse(t, "*", 1).Resolve(known)
		require.Equal(t, []string{"c", "a", "b"}, known)
	})
}

func TestSpec(t *testing.T) {
	t.Parallel()
	t.Run("only globs make a specification dynamic", func(t *testing.T) {
		t.Parallel()
		require.False(t, parse(t, "critical,mail:8,!low", 64).Dynamic())
		require.True(t, parse(t, "critical,mail_?", 64).Dynamic())
	})

	t.Run("the names of a worker id have neither caps nor exclusions", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"critical", "mail_*", "a:b"}, parse(t, "critical:25%,!low,mail_*:4,a:b", 64).Names())
	})

	t.Run("the text of a specification parses to the same again", func(t *testing.T) {
		t.Parallel()
		s := parse(t, "!low, critical:25% ,mail_*:4,!x*", 64)
		require.Equal(t, "critical:25%,mail_*:4,!low,!x*", s.String())
		require.Equal(t, s, parse(t, s.String(), 64))
	})

	t.Run("a specification survives JSON", func(t *testing.T) {
		t.Parallel()
		s := parse(t, "critical:25%,mail_*:4,!low", 64)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var back Spec
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, s, back)
	})
}

// BenchmarkResolve is what an idle daemon does at every poll.
func BenchmarkResolve(b *testing.B) {
	known := make([]string, 1000)
	for i := range known {
		known[i] = fmt.Sprintf("tenant_%04d_mail", i)
	}
	slices.Sort(known)
	for _, entries := range []string{"critical,*", "critical,tenant_00*_mail:4,*_mail,!tenant_*9_*"} {
		b.Run(entries, func(b *testing.B) {
			s, _, err := Parse(strings.Split(entries, ","), 64)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				s.Resolve(known)
			}
		})
	}
}
