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
		{"queues are joined by commas", "web-1", []string{"critical", "mail"}, "web-1/0.3:9120:critical,mail"},
		{"no queues are a star", "web-1", nil, "web-1/0.3:9120:*"},
		{"empty queues are left out", "web-1", []string{"", "a", ""}, "web-1/0.3:9120:a"},
		{"empty queues alone are a star", "web-1", []string{""}, "web-1/0.3:9120:*"},
		{"colons in a queue stay", "web-1", []string{"a:b"}, "web-1/0.3:9120:a:b"},
		{"white space and controls do not", "we b\n1", []string{"a\t\x00b c\xff\u2028"}, "we-b-1/0.3:9120:a--b-c--"},
		{"colons and slashes in a host do not", "fe80::1/x", []string{"q"}, "fe80--1-x/0.3:9120:q"},
		{"an empty host has a name", "", []string{"q"}, "localhost/0.3:9120:q"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, WorkerID(tt.host, 0, 3, 9120, tt.queues))
		})
	}
}

func TestBriefWorkerID(t *testing.T) {
	t.Parallel()
	short := WorkerID("web-1", 0, 3, 9120, []string{"critical", "mail"})
	require.Equal(t, short, BriefWorkerID(short))
	long := WorkerID("web-1", 0, 3, 9120, strings.Split(strings.Repeat("a:b,", 59)+"c", ","))
	require.Equal(t, "web-1/0.3:9120:60-queues", BriefWorkerID(long))
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
		{"ours", "web-1/2.3:9120:critical,mail", WorkerName{Host: "web-1", PID: 9120, Queues: []string{"critical", "mail"}, Ours: true, Slot: 2, Thread: 3}},
		{"ours with numbers in a queue", "w/0.0:1:a:1:2:3", WorkerName{Host: "w", PID: 1, Queues: []string{"a:1:2:3"}, Ours: true}},
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
		id := WorkerID(host, slot, thread, pid, strings.Split(queues, ","))
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
		_, err = ParseWorkerID(host + ":" + queues) // never panics
		_ = err
	})
}
