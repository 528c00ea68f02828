//go:build linux

package runners_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// cases are what every runner does, whatever its language and start.
var cases = []struct {
	name        string
	concurrency int
	check       func(t *testing.T, s shim, r *runner)
}{
	{"jobs that succeed", 1, func(t *testing.T, _ shim, r *runner) {
		for range many {
			assert.Contains(t, r.perform("Nop", 42, "hello", nil, []int{1}, map[string]any{"a": 1.5}), "done")
		}
	}},
	{"jobs that succeed, several at a time", 4, func(t *testing.T, _ shim, r *runner) {
		over := map[int]bool{}
		for range 4 {
			r.start("Nop", 1)
		}
		for len(over) < many {
			number, is := r.read()["done"].(float64)
			require.True(t, is)
			require.False(t, over[int(number)])
			over[int(number)] = true
			if r.next < many {
				r.start("Nop", 1)
			}
		}
	}},
	{"a failure", 1, func(t *testing.T, s shim, r *runner) {
		for _, message := range []string{"out of paper", "größer als 😀\n“\u2028”", ""} {
			failed := r.perform("Fail", message)
			require.Contains(t, failed, "failed")
			name := failed["exception"].(string)
			assert.True(t, name == "Boom" || strings.HasSuffix(name, ".Boom"), name)
			if message != "" { // Ruby says the name of the class then
				assert.Equal(t, message, failed["message"])
			}
			backtrace := failed["backtrace"].([]any)
			require.NotEmpty(t, backtrace)
			assert.Regexp(t, `/jobs\.\w+:\d+:in '?.+'`, backtrace[0])
			for _, line := range backtrace {
				assert.NotContains(t, line, "/runners/"+s.name+"/", "the runner's own lines")
			}
		}
	}},
	{"a class that is not there", 1, func(t *testing.T, s shim, r *runner) {
		failed := r.perform("NoSuchClass")
		assert.Equal(t, s.unknown, failed["exception"])
		assert.Contains(t, failed["message"], "NoSuchClass")
		for _, class := range []string{"", "constructor", "__proto__", "__init__", "Kernel", "nop", "Boom"} {
			assert.Contains(t, r.perform(class), "failed", class)
		}
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"arguments that do not fit", 1, func(t *testing.T, s shim, r *runner) {
		assert.Equal(t, s.unfit, r.perform("Two", 1)["exception"])
		assert.Equal(t, s.unfit, r.perform("Two", 1, 2, 3)["exception"])
		assert.Contains(t, r.perform("Two", 1, 2), "done")
	}},
	{"requeue and discard", 1, func(t *testing.T, _ shim, r *runner) {
		assert.InDelta(t, 2.5, r.perform("Again", 2.5)["after"], 0)
		requeued := r.perform("Again", 0)
		assert.Contains(t, requeued, "requeue")
		hit := r.perform("Hit", "stripe", 30)
		assert.Contains(t, hit, "limit_hit")
		assert.Equal(t, "stripe", hit["limit"])
		assert.InDelta(t, 30, hit["after"], 0)
		assert.Equal(t, "nobody reads it", r.perform("Drop", "nobody reads it")["why"])
	}},
	{"what a job tells", 1, func(t *testing.T, _ shim, r *runner) {
		number := r.start("Tell")
		end, lines := r.end(number)
		require.Contains(t, end, "done")
		require.Len(t, lines, 3)
		assert.Equal(t, map[string]any{"job": 1., "done": 3., "total": 9., "message": "half"}, lines[0]["progress"])
		assert.Equal(t, map[string]any{"job": 1., "level": "info", "message": "told"}, lines[1]["log"])
		assert.InDelta(t, number, lines[2]["refresh_lock"], 0)
	}},
	{"text of many bytes, and of many kinds", 1, func(t *testing.T, _ shim, r *runner) {
		assert.Equal(t, "5242880", r.perform("Length", strings.Repeat("x", 5<<20))["why"])
		assert.Equal(t, "900000", r.perform("Length", strings.Repeat("aé😀", 300000))["why"])
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a payload in base64", 1, func(t *testing.T, _ shim, r *runner) {
		payload := base64.StdEncoding.EncodeToString([]byte(`{"class":"Drop","args":["from base64"]}`))
		end, _ := r.end(r.startPayload("Drop", `"payload_base64":"`+payload+`"`))
		assert.Equal(t, "from base64", end["why"])
		for _, bytes := range []string{"{\"class\":\"Drop\",\"args\":[\"\xff\xfe\"]}", "no JSON", "[]", ""} {
			payload := base64.StdEncoding.EncodeToString([]byte(bytes))
			r.end(r.startPayload("Drop", `"payload_base64":"`+payload+`"`))
		}
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"payloads that are odd", 1, func(t *testing.T, _ shim, r *runner) {
		for _, keys := range []string{
			`"payload":{"class":"Nop"}`,
			`"payload":{"class":"Nop","args":null}`,
			`"payload":{"class":"Nop","args":{"a":1}}`,
			`"payload":{"class":"Nop","args":"text"}`,
			`"payload":{"class":"Nop","args":[` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `]}`,
			`"payload":{"class":"Nop","args":[` + strings.Repeat("9", 10000) + `]}`,
			`"payload":{"class":"Nop","args":[1e999,-0,1E-999]}`,
			`"payload":{"class":"Nop","args":["\ud800","\u0000"],"__proto__":{"args":[1]}}`,
		} {
			r.end(r.startPayload("Nop", keys))
		}
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"lines that are none", 1, func(t *testing.T, _ shim, r *runner) {
		for _, line := range []string{
			`{"sing":true}`, `{}`, `no JSON`, `[]`, `null`, `17`, ``, "\xff\xfe", `{"job":null}`, `{"job":{}}`,
			`{"job":{"class":"Nop"}}`, `{"job":7}`, strings.Repeat("[", 100000),
		} {
			r.write("%s", line)
			assert.Contains(t, r.read(), "error", "%.40s", line)
		}
		for _, line := range []string{
			`{"cancel":999,"why":"killed"}`, `{"slice_over":999}`, `{"reply":{"job":999,"line":{"saved":1}}}`,
			`{"reply":7}`, `{"pause":true}`, `{"resume":true}`,
		} {
			r.write("%s", line)
		}
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a cancel while a job sleeps", 1, func(t *testing.T, _ shim, r *runner) {
		cancelled(t, r, r.start("Sleep", 600))
	}},
	{"a cancel while a job works", 1, func(t *testing.T, s shim, r *runner) {
		if s.blocks {
			t.Skip("code that does not wait cannot be interrupted in this language: KILL ends it")
		}
		cancelled(t, r, r.start("Busy", 600))
	}},
	{"a cancel of one of several", 4, func(t *testing.T, s shim, r *runner) {
		class := "Sleep"
		if !s.threads {
			class = "Busy" // a system call in a thread is not interrupted in this language: KILL ends it
		}
		other, long := r.start("Sleep", 1), r.start(class, 600)
		r.write(`{"cancel":%d,"why":"timeout"}`, long)
		ends := map[string]any{}
		for range 2 {
			maps.Copy(ends, r.read())
		}
		assert.EqualValues(t, long, ends["failed"])
		assert.EqualValues(t, other, ends["done"], "the other one goes on")
		left(t, r)
	}},
	{"the end of the socket while a job sleeps", 1, func(t *testing.T, _ shim, r *runner) {
		r.start("Sleep", 600)
		require.NoError(t, r.conn.Close())
		r.gone()
	}},
	{"the end of the socket while a job works", 1, func(t *testing.T, s shim, r *runner) {
		if s.blocks {
			t.Skip("code that does not wait cannot be interrupted in this language: KILL ends it")
		}
		r.start("Busy", 600)
		require.NoError(t, r.conn.Close())
		r.gone()
	}},
	{"the end of the socket while several jobs sleep", 4, func(t *testing.T, _ shim, r *runner) {
		for range 4 {
			r.start("Sleep", 600)
		}
		require.NoError(t, r.conn.Close())
		r.gone()
	}},
	{"the end of the socket while it is idle", 1, func(t *testing.T, _ shim, r *runner) {
		require.Contains(t, r.perform("Nop"), "done")
		require.NoError(t, r.conn.Close())
		r.gone()
	}},
	{"leave while it is idle", 1, func(t *testing.T, _ shim, r *runner) {
		r.write(`{"leave":true}`)
		left(t, r)
	}},
	{"leave while a job runs", 1, func(t *testing.T, _ shim, r *runner) {
		number := r.start("Sleep", 0.3)
		r.write(`{"leave":true}`)
		end, _ := r.end(number)
		assert.Contains(t, end, "done")
		left(t, r)
	}},
	{"leave while several jobs run", 4, func(t *testing.T, _ shim, r *runner) {
		for range 3 {
			r.start("Meet", 3)
		}
		r.write(`{"leave":true}`)
		for range 3 {
			assert.Contains(t, r.read(), "done")
		}
		left(t, r)
	}},
	{"jobs beside each other", 4, func(t *testing.T, _ shim, r *runner) {
		for range 4 {
			r.start("Meet", 4)
		}
		for range 4 {
			assert.Contains(t, r.read(), "done")
		}
	}},
	{"a job that calls exit", 1, func(t *testing.T, s shim, r *runner) {
		if s.exit == "" {
			r.start("Exit", 3)
			r.closed()
			return
		}
		for _, code := range []int{0, 3} {
			assert.Equal(t, s.exit, r.perform("Exit", code)["exception"])
		}
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a job that ends the process", 1, func(_ *testing.T, _ shim, r *runner) {
		r.start("Die")
		r.closed()
		r.gone()
	}},
	{"a job that never returns from itself", 1, func(t *testing.T, s shim, r *runner) {
		failed := r.perform("Recurse")
		assert.Equal(t, s.recursion, failed["exception"])
		assert.LessOrEqual(t, len(failed["backtrace"].([]any)), 1000)
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a job that closes descriptors", 1, func(t *testing.T, s shim, r *runner) {
		if s.name == "node" {
			t.Skip("Node keeps the socket on its descriptor: the runner ends, and the job has died")
		}
		assert.Contains(t, r.perform("CloseAll"), "done")
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a job that forks, and both return", 1, func(t *testing.T, s shim, r *runner) {
		if !s.fork {
			t.Skip("it cannot fork")
		}
		assert.Contains(t, r.perform("ForkAndReturn"), "done")
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"a slice that ends the run", 1, func(t *testing.T, _ shim, r *runner) {
		assert.Contains(t, slice(t, r, 5, false), "done")
	}},
	{"a slice that is over", 1, func(t *testing.T, _ shim, r *runner) {
		assert.Contains(t, slice(t, r, 20000, true), "yield")
		assert.Contains(t, r.perform("Nop"), "done")
	}},
	{"what jobs print", 1, func(t *testing.T, _ shim, r *runner) {
		require.Contains(t, r.perform("Print", "grüße"), "done")
		require.Eventually(t, func() bool {
			return r.out.String() == "grüße\n" && r.err.String() == "grüße\n"
		}, patience, time.Millisecond, "%s %s", r.out, r.err)
	}},
}

// many jobs in a row take more than one buffer of a socket.
const many = 1000

// cancelled cancels a job, whose failure and whose runner's end must follow.
func cancelled(t *testing.T, r *runner, number int) {
	t.Helper()
	r.write(`{"cancel":%d,"why":"timeout"}`, number)
	end, _ := r.end(number)
	require.Contains(t, end, "failed")
	assert.Regexp(t, `Cancelled|TermException|Interrupt`, end["exception"])
	r.closed()
	r.gone()
}

// left checks that a runner that was asked to leave ends normally.
func left(t *testing.T, r *runner) {
	t.Helper()
	r.closed()
	r.gone()
	if r.wait != nil {
		code, err := r.wait()
		require.NoError(t, err)
		assert.Zero(t, code, "%s", r.err)
	}
}

// slice hands out a slice, acknowledges all saves, and returns the last report.
func slice(t *testing.T, r *runner, count int, over bool) map[string]any {
	t.Helper()
	r.next++
	r.write(`{"job":{"number":%d,"id":"job","class":"Steps","queue":"q","attempt":1,"payload":{"class":"Steps","args":["run"]},`+
		`"args":[%d],"run":"2b5a","slice":1,"fence":7,"message":null,"state":{}}}`, r.next, count)
	if over {
		r.write(`{"slice_over":%d}`, r.next)
	}
	var last map[string]any
	saved := 0
	for {
		line := r.read()
		if done, is := line["done"]; is {
			require.EqualValues(t, r.next, done)
			return last
		}
		report, is := line["report"].(map[string]any)
		require.True(t, is, "%v", line)
		require.EqualValues(t, r.next, report["job"])
		last = report["line"].(map[string]any)
		if _, is := last["state"]; is {
			saved++
			r.write(`{"reply":{"job":%d,"line":{"saved":%d}}}`, r.next, saved)
		}
	}
}

func TestRunners(t *testing.T) {
	t.Parallel()
	for _, s := range shims {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Run("started", func(t *testing.T) {
				t.Parallel()
				for _, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.check(t, s, s.direct(t, c.concurrency))
					})
				}
			})
			if !s.fork {
				return
			}
			t.Run("forked", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				for _, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.check(t, s, p.within(t).fork(c.concurrency))
					})
				}
			})
		})
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, s := range shims {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if !s.fork {
				t.Run("it refuses to be one", func(t *testing.T) {
					t.Parallel()
					s.need(t)
					_, theirs := pair(t, unix.SOCK_STREAM)
					_, other := pair(t, unix.SOCK_SEQPACKET)
					cmd, _, errs := s.spawn(t, []*os.File{theirs, other}, "RESQUED_FD=3", "RESQUED_FORK_FD=4", "RESQUED_RUNNER=app")
					code, err := ended(t, cmd)()
					require.NoError(t, err)
					assert.Equal(t, 78, code)
					assert.Contains(t, errs.String(), "fork: false")
				})
				return
			}
			t.Run("runners are processes of their own", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				one, two := p.fork(1), p.fork(2)
				assert.NotEqual(t, one.pid, two.pid)
				for _, r := range []*runner{one, two} {
					session, err := unix.Getsid(r.pid)
					require.NoError(t, err)
					assert.Equal(t, r.pid, session)
					assert.Equal(t, "proc-2", r.perform("Environment", "RESQUED_PROC")["why"])
					assert.Equal(t, "(not set)", r.perform("Environment", "RESQUED_FORK_FD")["why"])
				}
				// Neither inherits a socket of the template: without the template and the asker,
				// each sees the end of its own.
				requests := inode(t, p.pid, 4)
				require.NotEmpty(t, requests)
				for _, r := range []*runner{one, two} {
					for _, link := range descriptors(t, r.pid) {
						assert.NotEqual(t, requests, link)
					}
				}
			})
			t.Run("requests that are none", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				reader, writer, err := os.Pipe()
				require.NoError(t, err)
				defer reader.Close()
				p.request("no JSON")
				p.request("[]", writer)
				p.request(`{"fork":7}`, writer, writer, writer, writer)
				p.request(`{"fork":{"concurrency":1}}`)
				p.request(`{"fork":{"concurrency":1}}`, writer, writer)
				p.request(`{"fork":{"concurrency":1}}`, writer, writer, writer, writer, writer)
				require.NoError(t, writer.Close())
				assert.Contains(t, p.fork(1).perform("Nop"), "done")
				require.NoError(t, reader.SetReadDeadline(time.Now().Add(patience)))
				_, err = reader.Read(make([]byte, 1))
				assert.ErrorIs(t, err, io.EOF, "the template keeps descriptors that came with them")
			})
			for _, room := range []int{0, 2} {
				t.Run(fmt.Sprintf("there is room for %d of the descriptors of a request", room), func(t *testing.T) {
					t.Parallel()
					p := s.boot(t)
					r := p.fork(1)
					var limit uint64
					var asked *runner
					for {
						limit = crowded(t, p.pid, room)
						conn, other := pair(t, unix.SOCK_STREAM)
						asked = &runner{tb: t, conn: conn, lines: bufio.NewReader(conn), err: p.err}
						p.request(`{"fork":{"concurrency":1,"env":{}}}`, other, other, other, other)
						require.NoError(t, other.Close())
						require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
						if _, err := asked.lines.ReadString('\n'); err != nil {
							break
						}
						// If a runner says hello, a garbage collection had closed a file, so
						// there was room.
						require.NoError(t, conn.Close())
					}
					// Another process must replace it: this one would fail at each request.
					code, err := p.wait()
					require.NoError(t, err)
					assert.NotZero(t, code)
					assert.Contains(t, p.err.String(), fmt.Sprintf("%d of 4 descriptors", room))
					assert.Contains(t, p.err.String(), fmt.Sprintf("limit of open files is %d", limit))
					asked.closed()
					assert.Contains(t, r.perform("Nop"), "done", "its runners go on")
				})
			}
			t.Run("a runner that has ended is reaped", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				r := p.fork(1)
				r.write(`{"leave":true}`)
				r.closed()
				require.Eventually(t, func() bool { return unix.Kill(r.pid, 0) == unix.ESRCH }, patience, time.Millisecond)
			})
			t.Run("it says how runners have ended", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				one, two, three := p.fork(1), p.fork(1), p.fork(1)
				one.start("Die")
				require.NoError(t, unix.Kill(two.pid, syscall.SIGKILL))
				for r, want := range map[*runner]syscall.WaitStatus{one: 3 << 8, two: syscall.WaitStatus(syscall.SIGKILL)} {
					require.NoError(t, r.ending.SetReadDeadline(time.Now().Add(patience)))
					text, err := io.ReadAll(r.ending)
					require.NoError(t, err, "another runner holds the descriptor")
					var status syscall.WaitStatus
					_, err = fmt.Sscanln(string(text), &status)
					require.NoError(t, err)
					assert.Equal(t, want, status)
				}
				assert.Contains(t, three.perform("Nop"), "done")
			})
			t.Run("it ends when nobody can ask it any more", func(t *testing.T) {
				t.Parallel()
				p := s.boot(t)
				r := p.fork(1)
				number := r.start("Sleep", 0.2)
				require.NoError(t, p.conn.Close())
				two := p.fork(1)
				require.Contains(t, two.perform("Nop"), "done")
				require.NoError(t, p.requests.Close())
				code, err := p.wait()
				require.NoError(t, err)
				assert.Zero(t, code, "%s", p.err)
				end, _ := r.end(number)
				assert.Contains(t, end, "done", "its runners go on")
				assert.Contains(t, two.perform("Nop"), "done")
			})
			t.Run("a runner that is asked to die dies of it", func(t *testing.T) {
				t.Parallel()
				r := s.boot(t).fork(1)
				r.start("Sleep", 600)
				require.NoError(t, unix.Kill(r.pid, syscall.SIGTERM))
				r.gone()
			})
		})
	}
}
