//go:build unix

package longjob_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

// commands is a bed with a class C that is a shell script.
type commands struct {
	*bed
	dir string
	set *handler.Set
}

func newCommands(t *testing.T, script string, o longjob.Options) *commands {
	t.Helper()
	c := &commands{bed: newBed(t), dir: t.TempDir()}
	if o.Queue == "" {
		o.Queue, o.RequeueQueue = "q", "low"
	}
	c.h.Register(longjob.Command("C", resqued.Command{Argv: []string{"sh", "-c", script}, Dir: c.dir, KillAfter: 5 * time.Second}, o))
	var err error
	c.set, err = handler.New(c.h, handler.Options{Environ: os.Environ()})
	require.NoError(t, err)
	t.Cleanup(c.set.Close)
	return c
}

// slice performs the next slice, and returns how it has ended and the run after it.
func (c *commands) slice(uuid string) (longjob.Run, error) {
	c.t.Helper()
	k := c.take("q", "low")
	require.NotNil(c.t, k)
	return c.perform(uuid, k)
}

func (c *commands) perform(uuid string, k *taken) (longjob.Run, error) {
	c.t.Helper()
	err := c.call(k)
	k.complete(err)
	return c.run(uuid), err
}

func (c *commands) call(k *taken) error {
	e, err := wire.Parse(k.reserved.Payload, 0)
	require.NoError(c.t, err)
	job := &resqued.Job{ID: e.ID, Class: e.Class, Args: e.Args, Payload: k.reserved.Payload, Queue: k.reserved.Queue, Attempt: 1}
	*jobctx.RunOf(job) = jobctx.Run{Proc: k.proc, Token: k.reserved.Token}
	result := make(chan error, 1)
	c.set.Perform(jobctx.WithJob(jobctx.WithLeaving(k.ctx, k.leaving), job), job, func(err error) { result <- err })
	return <-result
}

func (c *commands) await(name string) string {
	c.t.Helper()
	var text []byte
	require.Eventually(c.t, func() bool {
		text, _ = os.ReadFile(filepath.Join(c.dir, name))
		return strings.HasSuffix(string(text), "\n")
	}, patience, 2*time.Millisecond, name)
	return strings.TrimSpace(string(text))
}

func state(run longjob.Run) string {
	text, _ := json.Marshal(run.State)
	return string(text)
}

// never is the length of a slice that outlasts the test.
const never = time.Hour

func TestCommand(t *testing.T) {
	t.Parallel()
	t.Run("a run goes through slices and is completed", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `
			read -r job; echo "$job" >> jobs
			case $RESQUED_LONG_SLICE in
			1) echo '{"state":{"page": 1,"big":12345678901234567890.10,"tmp":"x"}}' >&3; echo '{"yield":true}' >&3;;
			2) echo '{"state":{"page":2,"tmp":null},"progress":{"done":2,"total":3,"step":"copy","message":"two of three"},"units":7,"yield":true}' >&3;;
			esac`, longjob.Options{Slice: never})
		uuid := c.enqueue("C", []any{"north", 12})
		run, err := c.slice(uuid)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusQueued, run.Status)
		require.Equal(t, "low", run.Queue)
		require.Equal(t, `1`, string(run.State["page"]))
		require.Equal(t, `12345678901234567890.10`, string(run.State["big"]), "byte for byte")
		run, err = c.slice(uuid)
		require.NoError(t, err)
		require.Equal(t, `{"big":12345678901234567890.10,"page":2}`, state(run))
		require.Equal(t, "two of three", run.Message)
		require.Len(t, run.Steps, 1)
		require.Equal(t, "copy", run.Steps[0].Name)
		require.EqualValues(t, 2, run.Steps[0].Done)
		require.EqualValues(t, 3, run.Steps[0].Total)
		run, err = c.slice(uuid)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.Equal(t, 3, run.Slices)
		require.EqualValues(t, 8, run.Units)
		require.Nil(t, c.take("q", "low"))
		var seen []string
		for line := range strings.Lines(c.await("jobs")) {
			var job struct {
				Run, Message, Deadline string
				Args, State            json.RawMessage
				Slice, Fence, Units    int64
			}
			require.NoError(t, json.Unmarshal([]byte(line), &job))
			require.Equal(t, uuid, job.Run)
			require.Equal(t, `["north",12]`, string(job.Args))
			require.Positive(t, job.Fence)
			require.NotEmpty(t, job.Deadline)
			seen = append(seen, fmt.Sprint(job.Units, " ", string(job.State), job.Message))
		}
		require.Equal(t, []string{`0 {}`, `1 {"big":12345678901234567890.10,"page":1,"tmp":"x"}`, `8 {"big":12345678901234567890.10,"page":2}two of three`}, seen)
	})

	t.Run("what is acknowledged is saved", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `
			echo '{"state":{"n":1}}' >&3; echo '{"progress":{"done":1}}' >&3; echo '{"state":{"n":2}}' >&3
			while [ "$said" != '{"saved":2}' ]; do read -r said <&4; done
			echo "$said" > said; while [ ! -e go ]; do sleep 0.01; done`, longjob.Options{Slice: never})
		uuid := c.enqueue("C", nil)
		k := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(k) }()
		require.Equal(t, `{"saved":2}`, c.await("said"))
		require.Equal(t, `{"n":2}`, state(c.run(uuid)))
		require.Equal(t, longjob.StatusRunning, c.run(uuid).Status)
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600))
		require.NoError(t, <-done)
	})

	t.Run("progress is saved within seconds", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `echo '{"progress":{"done":5,"message":"half"}}' >&3; while [ ! -e go ]; do sleep 0.01; done`, longjob.Options{Slice: never})
		uuid := c.enqueue("C", nil)
		k := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(k) }()
		require.Eventually(t, func() bool { return c.run(uuid).Message == "half" }, patience, 10*time.Millisecond)
		require.Equal(t, "work", c.run(uuid).Steps[0].Name)
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600))
		require.NoError(t, <-done)
	})
}

// TestCommandEnds checks how a slice ends, and the status of the run afterwards.
func TestCommandEnds(t *testing.T) {
	t.Parallel()
	const (
		save = `echo '{"state":{"n":'$RESQUED_LONG_SLICE'}}' >&3; read -r said <&4; `
		loop = `while :; do sleep 0.01; done`
	)
	for _, tc := range []struct {
		name, script string
		status       longjob.Status
		fails, warns string
	}{
		{"0 at once: completed", `exit 0`, longjob.StatusCompleted, "", ""},
		{"told, and yields", `trap 'echo "{\"yield\":true}" >&3; exit 0' TERM; ` + loop, longjob.StatusQueued, "", ""},
		{"told, and is done", `trap 'echo "{\"done\":true}" >&3; exit 0' TERM; ` + loop, longjob.StatusCompleted, "", ""},
		{"told, and says both: yields", `trap 'echo "{\"done\":true,\"yield\":true}" >&3; exit 0' TERM; ` + loop, longjob.StatusQueued, "", ""},
		{"told, 0, has saved: not completed", `trap 'exit 0' TERM; ` + save + loop, longjob.StatusQueued, "", ""},
		{"told, 0, has saved nothing", `trap 'exit 0' TERM; ` + loop, longjob.StatusFailed, "but said neither", ""},
		{"knows nothing of TERM, has saved", save + loop, longjob.StatusQueued, "", ""},
		{"knows nothing of TERM, has saved nothing", `echo why >&2; ` + loop, longjob.StatusFailed, "it was ended by the SIGTERM that tells of the end of its slice; and it has saved nothing new in the whole slice, so that the next one would do the same again\nwhy", ""},
		{"ignores TERM, has saved", `trap '' TERM; ` + save + loop, longjob.StatusQueued, "", "it ran on for 200ms after it was told"},
		{"ignores TERM, has saved nothing", `trap '' TERM; ` + loop, longjob.StatusFailed, "it ran on for 200ms", ""},
		{"yields, and hangs", `trap '' TERM; echo '{"yield":true}' >&3; ` + loop, longjob.StatusQueued, "", "it ran on for 200ms"},
		{"told, and fails", `trap 'echo no >&2; exit 3' TERM; ` + save + loop, longjob.StatusFailed, "sh: exit code 3: no", ""},
		{"yields and fails", `echo '{"yield":true}' >&3; echo oops >&2; exit 1`, longjob.StatusFailed, "sh: exit code 1: oops", ""},
		{"is done and fails", `echo '{"done":true}' >&3; exit 1`, longjob.StatusFailed, "sh: exit code 1", ""},
		{"75", save + `exit 75`, longjob.StatusQueued, "", ""},
		{"100", save + `echo nobody >&2; exit 100`, longjob.StatusCompleted, "", ""},
		{"no JSON", `echo hello >&3; ` + loop, longjob.StatusFailed, "line 1 on descriptor 3 is not a message: it is not a JSON object: hello", ""},
		{"binary", `printf '\377\000\n' >&3; ` + loop, longjob.StatusFailed, `line 1 on descriptor 3 is not a message: it is not UTF-8: \xff\x00`, ""},
		{"a yield that is none", `echo '{"yield":"yes"}' >&3; ` + loop, longjob.StatusFailed, `"yield" is neither true nor false`, ""},
		{"a line that is too long", `head -c 2000000 /dev/zero | tr '\0' x >&3; echo >&3; ` + loop, longjob.StatusFailed, "it is longer than 1114112 bytes", ""},
		{"a state that is too large", `{ printf '{"state":{"a":"'; head -c 1048576 /dev/zero | tr '\0' x; echo '"}}'; } >&3; ` + loop, longjob.StatusFailed, "the state is too large", ""},
		{"half a line at the end", `printf '{"state":{"n' >&3`, longjob.StatusCompleted, "", "line 1 on descriptor 3 is not a message"},
		{"a key that nobody knows", `echo '{"stat":{"n":1}}' >&3`, longjob.StatusCompleted, "", `line 1 on descriptor 3: "stat" is not known`},
		{"not started", ``, longjob.StatusFailed, "start \"sh\"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := longjob.Options{Slice: never, Grace: never, Retries: -1}
			switch {
			case strings.Contains(tc.script, "trap '' TERM"): // enough for a shell to begin on a loaded machine
				o.Slice, o.Grace = 1500*time.Millisecond, 200*time.Millisecond
			case strings.Contains(tc.script, "TERM"), strings.HasPrefix(tc.name, "knows"):
				o.Slice, o.Grace = 100*time.Millisecond, 3*time.Second
			}
			c := newCommands(t, tc.script, o)
			if tc.script == "" {
				require.NoError(t, os.Remove(c.dir))
			}
			uuid := c.enqueue("C", nil)
			run, err := c.slice(uuid)
			if err != nil {
				var requeue *resqued.RequeueError
				require.True(t, errors.As(err, &requeue) || errors.Is(err, resqued.Discard), err)
			}
			require.Equal(t, tc.status, run.Status, run.Error)
			require.Contains(t, run.Error, tc.fails)
			require.Equal(t, tc.fails == "", run.Error == "", run.Error)
			require.Contains(t, run.Warning, tc.warns)
			require.Equal(t, tc.warns == "", run.Warning == "", run.Warning)
			if strings.Contains(tc.script, save) && tc.status != longjob.StatusCompleted {
				require.Equal(t, `{"n":1}`, state(run))
			}
			if tc.status == longjob.StatusQueued {
				require.Equal(t, 2, run.Slice)
			}
			require.Zero(t, c.redis.LLen(t.Context(), c.ns+":failed").Val(), "never in Resque's list of failures")
		})
	}

	t.Run("one that begins slowly is told with its first report", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `sleep 0.5; `+save+loop, longjob.Options{Slice: 50 * time.Millisecond, Grace: never, Retries: -1})
		run, err := c.slice(c.enqueue("C", nil))
		require.NoError(t, err)
		require.Equal(t, longjob.StatusQueued, run.Status, run.Error)
		require.Equal(t, `{"n":1}`, state(run))
	})

	t.Run("a process that wants to leave tells the command, and that is not a failure", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `echo $$ > pid; `+loop, longjob.Options{Slice: never, Retries: -1})
		uuid := c.enqueue("C", nil)
		k := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(k) }()
		c.await("pid")
		k.leave()
		require.NoError(t, <-done)
		k.complete(nil)
		run := c.run(uuid)
		require.Equal(t, longjob.StatusQueued, run.Status, run.Error)
		require.NoError(t, os.RemoveAll(c.dir)) // it could not even be started
		k = c.take("low")
		k.leave()
		run, err := c.perform(uuid, k)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusQueued, run.Status, "a process that is leaving starts none: %s", run.Error)
	})

	t.Run("one that is killed may save, and runs again", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `trap 'echo "{\"state\":{\"last\":\"words\"},\"yield\":true}" >&3; exit 0' TERM; echo $$ > pid; `+loop, longjob.Options{Slice: never})
		uuid := c.enqueue("C", nil)
		k := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(k) }()
		c.await("pid")
		k.kill(resqued.ErrKilled)
		var requeue *resqued.RequeueError
		err := <-done
		require.ErrorAs(t, err, &requeue)
		k.complete(err)
		run := c.run(uuid)
		require.Equal(t, longjob.StatusQueued, run.Status)
		require.Equal(t, 1, run.Slice, "the same slice runs again")
		require.Equal(t, `{"last":"words"}`, state(run))
	})

	t.Run("Cancel ends the command, and it saves nothing more", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `trap 'echo "{\"state\":{\"last\":\"words\"}}" >&3; exit 0' TERM; echo $$ > pid; `+loop, longjob.Options{Slice: never})
		uuid := c.enqueue("C", nil)
		k := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(k) }()
		c.await("pid")
		require.ErrorIs(t, c.Cancel(t.Context(), uuid), longjob.ErrEnding)
		require.ErrorIs(t, <-done, resqued.Discard)
		require.Equal(t, longjob.StatusCancelled, c.run(uuid).Status)
		require.Equal(t, `null`, state(c.run(uuid)))
	})

	t.Run("a slice that was believed to be dead cannot save, and its command ends", func(t *testing.T) {
		t.Parallel()
		c := newCommands(t, `
			if [ -e second ]; then echo '{"state":{"who":"the living"},"yield":true}' >&3; exit; fi
			echo $$ > pid; while [ ! -e second ]; do sleep 0.01; done; while [ ! -e go ]; do sleep 0.01; done
			echo '{"state":{"who":"the dead"}}' >&3; read -r said <&4; echo "said $said" > said; `+loop, longjob.Options{Slice: never})
		uuid := c.enqueue("C", nil)
		dead := c.take("q")
		done := make(chan error, 1)
		go func() { done <- c.call(dead) }()
		c.await("pid")
		dead.die()
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "second"), nil, 0o600))
		run, err := c.slice(uuid)
		require.NoError(t, err)
		require.Equal(t, `{"who":"the living"}`, state(run))
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o600))
		var requeue *resqued.RequeueError
		require.ErrorAs(t, <-done, &requeue)
		require.Equal(t, `{"who":"the living"}`, state(c.run(uuid)))
		require.NoFileExists(t, filepath.Join(c.dir, "said"), "it is told of no save")
	})
}

// Registering an invalid command is a mistake of the program.
func TestCommandWithoutAQueue(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { longjob.Command("C", resqued.Command{Argv: []string{"x"}}, longjob.Options{}) })
	h := resqued.New()
	h.Register(longjob.Command("C", resqued.Command{Argv: []string{"x"}}, longjob.Options{Queue: "q"}))
	class, _ := h.Lookup("C")
	require.True(t, class.Resumes)
	require.Equal(t, "q", class.Queue)
	require.Error(t, cmdslice.Of(class.Command)(t.Context(), &resqued.Job{}, nil), "outside of a daemon")
}
