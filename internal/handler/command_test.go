package handler_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestCommandInput(t *testing.T) {
	t.Parallel()
	args := raw(`12345678901234567`, `{"b" : 1,  "a":[]}`, `{}`, `"<>& `+"\u2028"+`"`, `"\u003c"`, `"$(touch x); -rf"`)

	t.Run("the job comes on stdin, byte for byte", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `cat > in; echo "$0 $#" > argv`)
		err := f.Run(t.Context(), &resqued.Job{
			ID: `a"b`, Class: "Run", Queue: "mail:x", Args: args, Attempt: 2, MaxAttempts: 7,
			EnqueuedAt: time.Date(2026, 11, 20, 9, 56, 21, 250e6, time.FixedZone("EST", -5*60*60)),
			Deadline:   time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC),
		})
		require.NoError(t, err)
		in, err := os.ReadFile(filepath.Join(f.dir, "in"))
		require.NoError(t, err)
		require.Equal(t, `{"id":"a\"b","class":"Run","args":`+args.String()+`,"queue":"mail:x","attempt":2,"max_attempts":7,`+
			`"enqueued_at":"2026-11-20T14:56:21.25Z","deadline":"2026-11-20T15:00:00Z"}`+"\n", string(in))
		require.Equal(t, "sh 0", f.read(t, "argv"), "nothing of the job is in the arguments")
	})
	t.Run("times that there are none of are null", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `cat > in`)
		require.NoError(t, f.run(t.Context()))
		require.Equal(t, `{"id":"j1","class":"Run","args":[],"queue":"q","attempt":1,"max_attempts":null,"enqueued_at":null,"deadline":null}`, f.read(t, "in"))
	})
	t.Run("a large job that is not read does no harm", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `exit 0`)
		large := raw(`"` + strings.Repeat("x", 2<<20) + `"`)
		require.NoError(t, f.Run(t.Context(), &resqued.Job{Class: "Run", Args: large}))
	})
	t.Run("a large job is read to its end", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `wc -c > n`)
		large := raw(`"` + strings.Repeat("x", 2<<20) + `"`)
		require.NoError(t, f.Run(t.Context(), &resqued.Job{Class: "Run", Args: large}))
		require.Regexp(t, `^20972\d\d$`, f.read(t, "n"))
	})
}

func TestCommandEnvironment(t *testing.T) {
	t.Parallel()
	f := setup(t, `env -0 > env; pwd > dir; ls /proc/self/fd > fds`, func(o *handler.Options, c *resqued.Class) {
		o.Environ = append([]string{
			"HOME=/home/app", "LANG=C.UTF-8", "EMPTY=", "PAGE=https://example.com/a@b:c",
			"REDIS_URL=redis://r", "RESQUE_REDIS_URL=r", "DATABASE_URL=x", "NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=1", "WATCHDOG_PID=1",
			"LISTEN_FDS=1", "CREDENTIALS_DIRECTORY=/run/c", "SMTP_PASS=p", "MY_PW=p", "GITHUB_PAT=p", "STRIPE_KEY=p", "MYSQL_PWD=p", "SENTRY_DSN=p", "REDIS_PASSWORD=p", "My_Secret_x=p", "GITHUB_TOKEN=p", "AWS_ACCESS_KEY_ID=p",
			"RESQUED_ROLE=worker", "RESQUED_WORKER_COUNT=4", "RESQUED_JOB=outer", "AMQP=amqp://user:pw@host/x", "nonsense",
		}, "PATH="+os.Getenv("PATH"))
		c.Command.Env = []string{"API_TOKEN=given", "HOME=/srv", "RESQUED_JOB_ID=forged"}
		c.Timeout = time.Hour
	})
	job := &resqued.Job{ID: "line\nbreak", Class: "Run", Queue: "q 1", Attempt: 3, LockKey: "resque:locket:x"}
	jobctx.RunOf(job).Fence = 42
	require.NoError(t, f.Run(t.Context(), job))

	text, err := os.ReadFile(filepath.Join(f.dir, "env"))
	require.NoError(t, err)
	env := map[string]string{}
	for v := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	require.Regexp(t, `^web-1:boot:1-2:0\.1/\d+$`, env["RESQUED_JOB"])
	require.Equal(t, job.Deadline.UTC().Format(time.RFC3339Nano), env["RESQUED_JOB_DEADLINE"])
	for _, name := range []string{"RESQUED_JOB", "RESQUED_JOB_DEADLINE", "PWD", "OLDPWD", "SHLVL", "_"} {
		delete(env, name) // checked, or the shell's own
	}
	require.Equal(t, map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": "/srv", "LANG": "C.UTF-8", "EMPTY": "", "PAGE": "https://example.com/a@b:c",
		"API_TOKEN": "given", "RESQUED_PROC": "web-1:boot:1-2:0.1", "RESQUED_FD": "3",
		"RESQUED_JOB_ID": "line\nbreak", "RESQUED_JOB_CLASS": "Run", "RESQUED_JOB_QUEUE": "q 1", "RESQUED_JOB_ATTEMPT": "3",
		"RESQUED_LOCK_KEY": "resque:locket:x", "RESQUED_LOCK_FENCE": "42",
	}, env)
	require.Equal(t, f.dir, f.read(t, "dir"))
	require.Equal(t, "0\n1\n2\n3\n4", f.read(t, "fds"), "4 is the directory that ls reads")
}

func TestCommandExit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, script, want string
	}{
		{"code 0 is success", `echo noise >&2`, ""},
		{"another code is a failure", `echo no such user >&2; exit 3`, "sh: exit code 3: no such user"},
		{"silence is told", `exit 1`, "sh: exit code 1, nothing on stderr"},
		{"several lines start on their own", `printf 'a\n\tb\r\n\n' >&2; exit 1`, "sh: exit code 1:\na\n\tb"},
		{"control characters and bytes that are not text are escaped", `printf 'a\033[31m\377\000b' >&2; exit 1`, `sh: exit code 1: a\x1b[31m\xff\x00b`},
		{"a signal is named", `kill -USR1 $$`, "sh: ended by SIGUSR1, nothing on stderr"},
		{"a signal of its own is not a kill", `kill -KILL $$`, "sh: ended by SIGKILL, nothing on stderr"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := setup(t, tt.script).run(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
			var failed *handler.CommandError
			require.ErrorAs(t, err, &failed)
			exception, message, backtrace := handler.Describe(err)
			require.Equal(t, "Resqued::CommandFailed", exception)
			require.Equal(t, tt.want, message)
			require.Empty(t, backtrace)
		})
	}
	t.Run("code 75 asks for another run, a little later", func(t *testing.T) {
		t.Parallel()
		err := setup(t, `exit 75`).run(t.Context())
		var requeue *resqued.RequeueError
		require.ErrorAs(t, err, &requeue)
		require.Equal(t, time.Second, requeue.After)
	})
	t.Run("code 75 after a limit was hit closes the limit", func(t *testing.T) {
		t.Parallel()
		before := time.Now()
		err := setup(t, `echo '{"limit_hit":{"limit":"stripe","after":30}}' >&3; exit 75`).run(t.Context())
		var hit *resqued.LimitHitError
		require.ErrorAs(t, err, &hit)
		require.Equal(t, "stripe", hit.Name)
		require.WithinRange(t, hit.Until, before.Add(30*time.Second), time.Now().Add(30*time.Second))
	})
	t.Run("code 100 discards and says why", func(t *testing.T) {
		t.Parallel()
		err := setup(t, `echo gone >&2; exit 100`).run(t.Context())
		require.ErrorIs(t, err, resqued.Discard)
		require.EqualError(t, err, `resqued: discarded: "sh" exited with code 100: gone`)
	})
	t.Run("the beginning and the end of a long stderr are kept", func(t *testing.T) {
		t.Parallel()
		err := setup(t, `i=0; while [ $i -lt 3000 ]; do echo "line $i of many, many lines on stderr" >&2; i=$((i+1)); done; exit 1`).run(t.Context())
		var failed *handler.CommandError
		require.ErrorAs(t, err, &failed)
		require.LessOrEqual(t, len(failed.Stderr), 16<<10)
		require.Greater(t, len(failed.Stderr), 15<<10)
		require.True(t, strings.HasPrefix(failed.Stderr, "line 0 of many, many lines on stderr\nline 1 "), "%.40s", failed.Stderr)
		require.Contains(t, failed.Stderr, " of many, many lines on stderr\n…line ")
		require.True(t, strings.HasSuffix(failed.Stderr, "line 2999 of many, many lines on stderr"))
	})
	t.Run("the end of one endless line is kept", func(t *testing.T) {
		t.Parallel()
		err := setup(t, `head -c 300000 /dev/zero >&2; printf end >&2; exit 1`).run(t.Context())
		var failed *handler.CommandError
		require.ErrorAs(t, err, &failed)
		require.LessOrEqual(t, len(failed.Stderr), 16<<10)
		require.True(t, strings.HasSuffix(failed.Stderr, `\x00end`))
	})
}

func TestCommandOutput(t *testing.T) {
	t.Parallel()

	t.Run("lines go to the log", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo one; printf 'two\033[31m\r\n'; printf 'no line break'; echo error >&2; head -c 20000 /dev/zero | tr '\0' x; echo; echo last`)
		require.NoError(t, f.run(t.Context()))
		var stdout []string
		for _, entry := range f.logs.FilterMessage("command output").All() {
			fields := entry.ContextMap()
			require.Equal(t, "Run", fields["class"])
			require.Equal(t, "j1", fields["job"])
			line := fields["line"].(string)
			require.LessOrEqual(t, len(line), 8<<10)
			if fields["stream"] == "stderr" {
				require.Equal(t, "error", line)
				continue
			}
			if strings.HasSuffix(line, "xxx") || strings.HasSuffix(line, "…") {
				require.EqualValues(t, 20000+len("no line break")-8<<10, fields["bytes_left_out"])
				continue
			}
			stdout = append(stdout, line)
		}
		require.Equal(t, []string{"one", `two\x1b[31m`, "last"}, stdout)
	})

	t.Run("progress comes on fd 3", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo '{"progress":{"done":3,"total":9}}' >&$RESQUED_FD; echo >&3; echo '{"later":1}' >&3`)
		require.NoError(t, f.run(t.Context()))
		progress := f.logs.FilterMessage("job progress").All()
		require.Len(t, progress, 1)
		require.Equal(t, "3", progress[0].ContextMap()["done"])
		require.Equal(t, "9", progress[0].ContextMap()["total"])
		require.Zero(t, f.logs.FilterMessageSnippet("not a message").Len(), "what is not known yet is ignored")
	})

	t.Run("a request to refresh the class lock comes on fd 3", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo '{"refresh_lock":true}' >&3; echo '{"refresh_lock":false}' >&3`)
		locks := &lockService{}
		require.NoError(t, f.run(jobctx.WithLocks(t.Context(), locks)))
		require.EqualValues(t, 1, locks.refreshed.Load())
		require.Equal(t, 1, f.logs.FilterMessage("class lock refreshed").Len())
	})

	t.Run("many requests to refresh the class lock are few refreshes, the last of them after the last request", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `for i in 1 2 3 4; do (yes '{"refresh_lock":true}' | head -n 20000 >&3) & done; wait; echo '{"progress":{"done":1}}' >&3; sleep 0.3; echo '{"refresh_lock":true}' >&3`)
		locks := &lockService{}
		began := time.Now()
		require.NoError(t, f.run(jobctx.WithLocks(t.Context(), locks)))
		most := int64(time.Since(began)/(250*time.Millisecond)) + 3 // at once, at its end, and one that was under way
		require.LessOrEqual(t, locks.refreshed.Load(), most)
		require.GreaterOrEqual(t, locks.refreshed.Load(), int64(2))
		require.Equal(t, 1, f.logs.FilterMessage("job progress").Len())
	})

	t.Run("a refresh that hangs holds up nothing that the command reports", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo '{"refresh_lock":true}' >&3; yes '{"refresh_lock":true}' | head -n 20000 >&3; echo '{"progress":{"done":1}}' >&3; until [ -e go ]; do sleep 0.01; done`)
		locks := &lockService{hang: make(chan struct{})}
		result := make(chan error, 1)
		go func() { result <- f.run(jobctx.WithLocks(t.Context(), locks)) }()
		require.Eventually(t, func() bool { return f.logs.FilterMessage("job progress").Len() == 1 }, time.Minute, time.Millisecond)
		close(locks.hang)
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o600))
		require.NoError(t, <-result)
	})

	t.Run("in vain is warned of once", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo '{"refresh_lock":true}' >&3; echo '{"refresh_lock":true}' >&3`)
		require.NoError(t, f.run(jobctx.WithLocks(t.Context(), &lockService{err: resqued.ErrNotLocked})))
		logs := f.logs.FilterMessageSnippet("in vain").All()
		require.Len(t, logs, 1)
		require.Equal(t, resqued.ErrNotLocked.Error(), logs[0].ContextMap()["error"])
	})

	t.Run("junk on fd 3 is warned of once", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo hello >&3; echo '[1]' >&3; echo '{"progress":5}' >&3; head -c 100000 /dev/zero >&3; echo >&3; echo '{"progress":{"done":1}}' >&3`)
		require.NoError(t, f.run(t.Context()))
		require.Equal(t, 1, f.logs.FilterMessageSnippet("not a message").Len())
		require.Equal(t, 1, f.logs.FilterMessage("job progress").Len())
	})
}

// lockService counts the refreshes of a lock.
type lockService struct {
	jobctx.Locks
	refreshed atomic.Int64
	err       error
	hang      chan struct{}
}

func (s *lockService) RefreshLock(context.Context) error {
	s.refreshed.Add(1)
	if s.hang != nil {
		<-s.hang
	}
	return s.err
}

func TestCommandNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		proctest.WriteProgram(t, path, []byte(text))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	command := func(argv ...string) func(*handler.Options, *resqued.Class) {
		return func(_ *handler.Options, c *resqued.Class) { c.Command.Argv = argv }
	}
	long := strings.Repeat("x", 200<<10)
	tests := []struct {
		name   string
		change func(*handler.Options, *resqued.Class)
		job    resqued.Job
		want   string
	}{
		{"a program that is not on the PATH", command("no-such-program"), resqued.Job{}, `start "no-such-program": executable file not found in $PATH: it is not on the daemon's PATH`},
		{"a path that is not there", command(dir + "/none"), resqued.Job{}, "no such file or directory: there is no such file, or the interpreter"},
		{"an interpreter that is not there", command(file("bad", "#!/none/sh\n", 0o755)), resqued.Job{}, "or the interpreter in its first line is missing"},
		{"a file that is not executable", command(file("plain", "#!/bin/sh\n", 0o644)), resqued.Job{}, "permission denied: the daemon's user may not run it; make it executable (chmod +x)"},
		{"a file that is not a program", command(file("text", "hello\n", 0o755)), resqued.Job{}, "exec format error: it is not a program for this machine; a script needs a first line such as #!/bin/sh"},
		{"a directory that is not there", func(_ *handler.Options, c *resqued.Class) { c.Command.Dir = dir + "/none" }, resqued.Job{}, `its working directory "` + dir + `/none" is not there`},
		{"a variable that is too long", command("true"), resqued.Job{Queue: long}, "argument list too long: an argument, a variable"},
		{"a NUL byte in a variable", command("true"), resqued.Job{Queue: "a\x00b"}, `start "true": RESQUED_JOB_QUEUE would hold a NUL byte (a\x00b), which no program can be given`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, "exit 0", tt.change)
			tt.job.Class = "Run"
			err := f.Run(t.Context(), &tt.job)
			require.ErrorContains(t, err, tt.want)
			var start *program.StartError
			require.ErrorAs(t, err, &start)
			exception, _, _ := handler.Describe(err)
			require.Equal(t, "Resqued::CommandNotStarted", exception)
		})
	}
	t.Run("a job that was ended before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(resqued.ErrKilled)
		f := setup(t, "touch ran")
		require.ErrorIs(t, f.run(ctx), resqued.ErrKilled)
		require.NoFileExists(t, filepath.Join(f.dir, "ran"))
	})
	t.Run("a set that is closed", func(t *testing.T) {
		t.Parallel()
		f := setup(t, "exit 0")
		require.NoError(t, f.run(t.Context()))
		f.Close()
		f.Close()
		require.ErrorContains(t, f.run(t.Context()), "no longer started")
	})
}

func TestCommandsOfGoAreCommands(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	h := resqued.New()
	h.Command("Run", []string{"sh", "-c", `test "$RESQUED_JOB_CLASS" = ::Run`})
	s := newSet(t, h, handler.Options{Environ: os.Environ()})
	require.NoError(t, s.Run(t.Context(), &resqued.Job{Class: "::Run"}))
}

func TestCommandLeaksNoDescriptors(t *testing.T) {
	f := setup(t, "exit 0")
	require.NoError(t, f.run(t.Context()))
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	before := count()
	for range 20 {
		require.NoError(t, f.run(t.Context()))
		_ = f.Run(t.Context(), &resqued.Job{Class: "Run", Queue: strings.Repeat("x", 200<<10)})
	}
	require.Equal(t, before, count())
}

func TestCommandErrorNamesUnknownSignals(t *testing.T) {
	t.Parallel()
	err := &handler.CommandError{Program: "x", Signal: syscall.Signal(40), CoreDump: true, Stderr: "s"}
	require.EqualError(t, err, "x: ended by signal 40 (core dumped): s")
	require.Equal(t, "start \"x\": y", fmt.Sprint(&program.StartError{Program: "x", Err: fmt.Errorf("y")}))
}

func TestEnvironmentRules(t *testing.T) {
	t.Parallel()
	rules := program.EnvRules{
		Keep: regexp.MustCompile(`^(AWS_SECRET_.*|REDIS_URL|BROKER|.*_BOTH|RESQUED_.*|NOTIFY_SOCKET)$`).MatchString,
		Drop: regexp.MustCompile(`^(BILLING_.*|.*_BOTH|PGUSER)$`).MatchString,
	}
	environ := []string{
		"AWS_SECRET_ACCESS_KEY=kept", "AWS_SESSION_TOKEN=secret", "aws_secret=secret", "REDIS_URL=kept", "BROKER=amqp://u:kept@h",
		"BILLING_HOST=dropped", "TOKEN_BOTH=dropped", "PLAIN_BOTH=dropped", "GITHUB_TOKEN=secret", "PLAIN=kept", "billing_host=kept",
		"PGUSER=pg", "PGPASSWORD=pg", "PGHOST=pg",
		"RESQUED_REDIS_URL=own", "NOTIFY_SOCKET=own",
	}
	names := func(environ []string) (list []string) {
		for _, variable := range environ {
			name, _, _ := strings.Cut(variable, "=")
			list = append(list, name)
		}
		return list
	}
	kept := []string{"AWS_SECRET_ACCESS_KEY", "REDIS_URL", "BROKER", "PLAIN", "billing_host"}
	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `env -0 > env`, func(o *handler.Options, c *resqued.Class) {
			o.Environ, o.Env = append(environ, "PATH="+os.Getenv("PATH")), rules
			c.Command.Env = []string{"TOKEN_BOTH=given", "GITHUB_TOKEN=given"}
		})
		require.NoError(t, f.run(t.Context()))
		raw, err := os.ReadFile(filepath.Join(f.dir, "env"))
		require.NoError(t, err)
		text := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		require.Subset(t, text, []string{"TOKEN_BOTH=given", "GITHUB_TOKEN=given", "BROKER=amqp://u:kept@h"})
		require.Subset(t, names(text), append(kept, "PGHOST"))
		for _, value := range []string{"secret", "dropped", "pg", "own"} {
			for _, variable := range text {
				if name, v, _ := strings.Cut(variable, "="); v == value {
					require.Equal(t, "PGHOST", name, variable)
				}
			}
		}
	})
	t.Run("worker processes", func(t *testing.T) {
		t.Parallel()
		all := append(kept, "PGUSER", "PGPASSWORD", "PGHOST", "RESQUED_REDIS_URL", "NOTIFY_SOCKET")
		require.ElementsMatch(t, all, names(program.Unsecret(environ, rules, true)))
		all = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "PGUSER" })
		require.ElementsMatch(t, all, names(program.Unsecret(environ, rules, false)))
	})
}
