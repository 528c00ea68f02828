package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandlers(t *testing.T) {
	t.Parallel()
	t.Run("class names keep their case, colons and dots", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: `
handlers:
  Thumb: {command: [python3, thumb.py, "", 7, "a b"], timeout: 2m, kill_after: 3s, at_most_once: yes}
  My::Job.v2:
    command: [./job]
    queue: mail
    dir: /srv/app
    env: {RAILS_ENV: production, My.Var: 1, EMPTY: ""}
  thumb: {command: [true], at_most_once: false}
`}.mustLoad(t)
		require.Equal(t, map[string]Handler{
			"Thumb": {Command: []string{"python3", "thumb.py", "", "7", "a b"}, Timeout: 2 * time.Minute, KillAfter: 3 * time.Second, AtMostOnce: true},
			"My::Job.v2": {
				Command: []string{"./job"}, Queue: "mail", Dir: "/srv/app", KillAfter: 10 * time.Second,
				Env: map[string]string{"RAILS_ENV": "production", "My.Var": "1", "EMPTY": ""},
			},
			"thumb": {Command: []string{"true"}, KillAfter: 10 * time.Second},
		}, r.Handlers)
		require.Equal(t, 4, r.Sources["handlers.My::Job.v2"].Line)
	})

	t.Run("an anchor may be used again", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: "handlers: {A: &a {command: [x]}, B: *a}"}.mustLoad(t)
		require.Equal(t, r.Handlers["A"], r.Handlers["B"])
	})

	t.Run("more time to stop than the process has is warned of", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: "handlers: {A: {command: [x], kill_after: 16}, B: {command: [x], kill_after: 15}}"}.mustLoad(t)
		require.Equal(t, []Warning{{
			Key: "handlers.A.kill_after", Code: "kill_after_too_long",
			Message: "A: kill_after 16s becomes 15s, half of resque_term_timeout 30s (default), after which its whole process is killed.",
		}}, r.Warnings)
		r = from{yaml: "resque_term_timeout: 4\nhandlers: {A: {command: [x]}}"}.mustLoad(t)
		require.Empty(t, r.Warnings, "the default follows without a word")
	})
}

func TestHandlersRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"a text for a command", "A: {command: python3 thumb.py}", `handlers.A.command "python3 thumb.py" (resqued.yaml:2): write it as a list, [python3, thumb.py]; no shell is involved`},
		{"a map for a command", "A: {command: {a: b}}", `handlers.A.command (resqued.yaml:2): must be a list: the program and its arguments`},
		{"an empty command", "A: {command: []}", `handlers.A.command (resqued.yaml:2): names no program; write the program first`},
		{"an empty program", "A: {command: ['', a]}", `handlers.A.command (resqued.yaml:2): names no program; write the program first`},
		{"an argument without a value", "A:\n    command:\n    - a\n    -\n", `handlers.A.command (resqued.yaml:5): has no value; give one ("" is the empty text) or remove the line`},
		{"a NUL byte in an argument", `A: {command: [a, "b\0c"]}`, `handlers.A.command "b\x00c" (resqued.yaml:2): must not hold NUL bytes, no program can be given one`},
		{"no command", "A: {timeout: 1}", `handlers.A (resqued.yaml:2): has no command; write command: [python3, thumb.py], or runner: NAME`},
		{"a list for a handler", "A: [python3]", `handlers.A (resqued.yaml:2): must be a map: {command: [python3, thumb.py]}, or {runner: app}`},
		{"nothing for a handler", "A:", `handlers.A (resqued.yaml:2): must be a map: {command: [python3, thumb.py]}, or {runner: app}`},
		{"a class twice", "A: {command: [a]}\n  A: {command: [b]}", `handlers.A (resqued.yaml:3): is given already on line 2; keep one of them`},
		{"a class without a name", "'': {command: [a]}", `handlers. (resqued.yaml:2): the class name is empty`},
		{"a class with a line break", `"A\r\nB": {command: [a]}`, `"handlers.A\r\nB" (resqued.yaml:2): the class name must not hold control characters`},
		{"an unknown field that is nearly one", "A: {command: [a], kil_after: 1}", `handlers.A.kil_after (resqued.yaml:2): unknown key; did you mean "kill_after"?`},
		{"what others call a field", "A: {command: [a], cwd: /}", `handlers.A.cwd (resqued.yaml:2): unknown key; did you mean "dir"?`},
		{"a gem's name that belongs to the lock", "A: {command: [a], loner: true}", `handlers.A.loner (resqued.yaml:2): unknown key; did you mean "lock.loner"?`},
		{"a field twice", "A: {command: [a], timeout: 1, timeout: 2}", `handlers.A.timeout (resqued.yaml:2): is given already on line 2; keep one of them`},
		{"more or less once", "A: {command: [a], at_most_once: maybe}", `handlers.A.at_most_once "maybe" (resqued.yaml:2): write true or false`},
		{"a negative timeout", "A: {command: [a], timeout: -1}", `handlers.A.timeout "-1" (resqued.yaml:2): must not be negative`},
		{"no time to stop", "A: {command: [a], kill_after: 0}", `handlers.A.kill_after "0" (resqued.yaml:2): must be above 0`},
		{"a queue with the key of a unique one", "A: {command: [a], queue: 'mail:start_at'}", `handlers.A.queue "mail:start_at" (resqued.yaml:2): queue "mail:start_at" cannot be used: its key is that of the unique queue "mail"; choose a name that does not end in :start_at`},
		{"a pattern for a queue", "A: {command: [a], queue: 'mail*'}", `handlers.A.queue "mail*" (resqued.yaml:2): must be one queue, not a pattern or a list`},
		{"a list for variables", "A: {command: [a], env: [B=c]}", `handlers.A.env (resqued.yaml:2): must be a map of names to values: {RAILS_ENV: production}`},
		{"a variable with an equals sign", "A: {command: [a], env: {B=: secret}}", `handlers.A.env.B= (resqued.yaml:2): a variable's name must not be empty and must not hold "="`},
		{"a variable with a NUL byte", `A: {command: [a], env: {B: "secret\0"}}`, `handlers.A.env.B (resqued.yaml:2): must not hold NUL bytes, no program can be given one`},
		{"a variable that is a map", "A: {command: [a], env: {B: {secret: word}}}", `handlers.A.env.B (resqued.yaml:2): must be one value; put it in quotes`},
		{"a variable of a lock", "A: {command: [a], env: {RESQUED_LOCK_KEY: x}}", `handlers.A.env.RESQUED_LOCK_KEY (resqued.yaml:2): is set by resqued itself; use another name`},
		{"a variable of the daemon's own", "A: {command: [a], env: {RESQUED_PROC: x}}", `handlers.A.env.RESQUED_PROC (resqued.yaml:2): is set by resqued itself; use another name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: "handlers:\n  " + tc.yaml}.load(t)
			require.EqualError(t, err, tc.want)
		})
	}
	t.Run("a list for all handlers", func(t *testing.T) {
		t.Parallel()
		_, err := from{yaml: "handlers: [a]"}.load(t)
		require.EqualError(t, err, "handlers (resqued.yaml:1): must be a map of class names to handlers: Thumb: {command: [python3, thumb.py]}")
	})
}

func TestCheckPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job"), []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	require.Equal(t, []Warning{
		{Key: "handlers.B.command", Code: "no_program", Message: `B: there is no program "no-such-program" here, or it may not be executed`},
		{Key: "handlers.D.command", Code: "no_program", Message: `D: there is no program "` + dir + `/data" here, or it may not be executed`},
		{Key: "handlers.E.dir", Code: "no_directory", Message: `E: there is no directory "/no/such" here`},
	}, CheckPrograms(Config{Handlers: map[string]Handler{
		"A": {Command: []string{"sh"}},
		"B": {Command: []string{"no-such-program"}},
		"C": {Command: []string{"./job"}, Dir: dir},
		"D": {Command: []string{"./data"}, Dir: dir},
		"E": {Command: []string{"sh"}, Dir: "/no/such"},
	}}))
}
