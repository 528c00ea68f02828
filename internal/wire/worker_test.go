package wire

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestWorkerID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		host   string
		queues []string
		want   string
	}{
		{"queues are joined by commas", "web-1", []string{"critical", "mail"}, "web-1~resqued:9120.0.3-2i6ujh:critical,mail:,mail"},
		{"no queues are a star", "web-1", nil, "web-1~resqued:9120.0.3-2i6ujh:*:,**"},
		{"empty queues are left out", "web-1", []string{"", "a", ""}, "web-1~resqued:9120.0.3-2i6ujh:a:,a"},
		{"empty queues alone are a star", "web-1", []string{""}, "web-1~resqued:9120.0.3-2i6ujh:*:,**"},
		{"colons in a queue stay", "web-1", []string{"a:b"}, "web-1~resqued:9120.0.3-2i6ujh:a:b:,a:b"},
		{"white space and controls do not", "we b\n1", []string{"a\t\x00b c\xff\u2028"}, "we-b-1~resqued:9120.0.3-2i6ujh:a--b-c--:,a--b-c--"},
		{"colons and slashes in a host do not", "fe80::1/x", []string{"q"}, "fe80--1-x~resqued:9120.0.3-2i6ujh:q:,q"},
		{"what a URL does not keep is matched by a star", "h", []string{"a/b?c#d%41+\"'<&>\\"}, "h~resqued:9120.0.3-2i6ujh:a*b*c*d*41*******:,a*b*c*d*41*******"},
		{"a star before others is one that Ruby does not take for all queues", "h", []string{"*", "low"}, "h~resqued:9120.0.3-2i6ujh:**,low:,low"},
		{"a star behind others", "h", []string{"low", "*"}, "h~resqued:9120.0.3-2i6ujh:low,*:,**"},
		{"an empty host has a name", "", []string{"q"}, "localhost~resqued:9120.0.3-2i6ujh:q:,q"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, WorkerID("p", tt.host, 0, 3, 9120, tt.queues))
		})
	}
}

// rubyPrunesNone checks that a worker of Ruby's Resque that was made of an id, as
// Resque.workers does it, has nothing to do with another id: it would compare what it
// listens to with the third part.
func rubyPrunesNone(t *testing.T, pruner, id string) {
	t.Helper()
	listens := strings.Split(strings.SplitN(pruner, ":", 3)[2], ",")
	require.NotContains(t, listens, "*")
	theirs := strings.Split(strings.Split(id, ":")[2], ",")
	require.NotSubset(t, theirs, listens, "%s against %s", pruner, id)
}

func TestRubyWorkersMadeOfIDsPruneNone(t *testing.T) {
	t.Parallel()
	lists := [][]string{nil, {"a"}, {"a", "b"}, {"b", "a"}, {"*", "a"}, {"a", "*"}, {"a", "a"}, {"a:b"}, {":"}, {"**"}}
	for _, a := range lists {
		for _, b := range lists {
			rubyPrunesNone(t, WorkerID("p", "h", 0, 0, 1, a), WorkerID("p", "h", 0, 1, 1, b))
		}
	}
}

func TestWorkerIDsDoNotComeBack(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, WorkerID("h:boot:1-100:0.1", "h", 0, 0, 7, nil), WorkerID("h:boot:1-900:0.1", "h", 0, 0, 7, nil), "the pid is the same")
}

func TestBriefWorkerID(t *testing.T) {
	t.Parallel()
	short := WorkerID("p", "web-1", 0, 3, 9120, []string{"critical", "mail"})
	require.Equal(t, short, BriefWorkerID(short))
	long := WorkerID("p", "web-1", 0, 3, 9120, strings.Split(strings.Repeat("a:b,", 59)+"c", ","))
	require.Equal(t, "web-1~resqued:9120.0.3-2i6ujh:60-queues", BriefWorkerID(long))
	name, err := ParseWorkerID(BriefWorkerID(long))
	require.NoError(t, err)
	require.Equal(t, WorkerName{Host: "web-1", PID: 9120, Queues: []string{"60-queues"}, Ours: true, Thread: 3}, name)
}

func TestParseWorkerID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, id string
		want     WorkerName
	}{
		{"ours", "web-1~resqued:9120.2.3-abc123:critical,mail:,mail", WorkerName{Host: "web-1", PID: 9120, Queues: []string{"critical", "mail"}, Ours: true, Slot: 2, Thread: 3}},
		{"ours of all queues", "web-1~resqued:9120.2.3-abc123:*:,**", WorkerName{Host: "web-1", PID: 9120, Queues: []string{"*"}, Ours: true, Slot: 2, Thread: 3}},
		{"ours with a star first", "h~resqued:1.0.0-a:**,low:,low", WorkerName{Host: "h", PID: 1, Queues: []string{"*", "low"}, Ours: true}},
		{"ours with numbers in a queue", "h~resqued:1.0.0-a:a:1:2:3:,a:1:2:3", WorkerName{Host: "h", PID: 1, Queues: []string{"a:1:2:3"}, Ours: true}},
		{"a master of ours", "h~resqued:7:delayed", WorkerName{Host: "h~resqued", PID: 7, Queues: []string{"delayed"}}},
		{"ours before", "web-1/2.3:9120:critical,mail", WorkerName{Host: "web-1", PID: 9120, Queues: []string{"critical", "mail"}, Ours: true, Slot: 2, Thread: 3}},
		{"ours before, with numbers in a queue", "w/0.0:1:a:1:2:3", WorkerName{Host: "w", PID: 1, Queues: []string{"a:1:2:3"}, Ours: true}},
		{"Ruby's", "web1:4242:high,low*", WorkerName{Host: "web1", PID: 4242, Queues: []string{"high", "low*"}}},
		{"Ruby's with a colon in a queue", "web1:4242:a:b", WorkerName{Host: "web1", PID: 4242, Queues: []string{"a:b"}}},
		{"a host with a slash that is not ours", "web/1:4242:a", WorkerName{Host: "web/1", PID: 4242, Queues: []string{"a"}}},
		{"the fork's master", "h:30334:*:2:3:5", WorkerName{Host: "h", PID: 30334, Queues: []string{"*"}, Processes: 2, Threads: 3, JobsPerFork: 5}},
		{"the fork's caps", "h:30334:q~2,r:2:3:5", WorkerName{Host: "h", PID: 30334, Queues: []string{"q~2", "r"}, Processes: 2, Threads: 3, JobsPerFork: 5}},
		{
			"a thread of the fork's", "h:30334:*:2:3:5:30340:1",
			WorkerName{Host: "h", PID: 30334, Queues: []string{"*"}, Processes: 2, Threads: 3, JobsPerFork: 5, ChildPID: 30340, Thread: 1},
		},
		{"node-resque's", "web1:4242+7:q", WorkerName{Host: "web1", PID: 4242, Number: 7, Queues: []string{"q"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseWorkerID(tt.id)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
	for _, id := range []string{"", "host", "host:1", "host:1:", ":1:q", "host:x:q", "host:1+:q", "host:-1:q", "\x1b:x:q"} {
		_, err := ParseWorkerID(id)
		require.Error(t, err, id)
		require.NotContains(t, err.Error(), "\x1b")
	}
}

func FuzzWorkerID(f *testing.F) {
	f.Add("web-1", 0, 3, 9120, "critical,mail")
	f.Add("", 1, 1, 1, "a:b, ,\x00")
	f.Add("fe80::1/0.1", 1, 1, 1, ":1:2:3")
	f.Fuzz(func(t *testing.T, host string, slot, thread, pid int, queues string) {
		slot, thread, pid = slot&0xffff, thread&0xffff, pid&0xffffff
		id := WorkerID("p", host, slot, thread, pid, strings.Split(queues, ","))
		parts := strings.SplitN(id, ":", 3)
		require.Len(t, parts, 3)
		require.NotEqual(t, host, parts[0])
		require.NotEmpty(t, parts[2])
		require.False(t, strings.ContainsFunc(id, func(r rune) bool {
			return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
		}), "%q", id)
		w, err := ParseWorkerID(id)
		require.NoError(t, err)
		require.True(t, w.Ours)
		require.Equal(t, []int{slot, thread, pid}, []int{w.Slot, w.Thread, w.PID})
		require.NotEmpty(t, w.Queues)
		require.NotContains(t, id, "/", "no route of Ruby's page has it")
		rubyPrunesNone(t, id, id)
		_, err = ParseWorkerID(host + ":" + queues) // never panics
		_ = err
	})
}
