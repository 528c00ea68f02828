package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/wire"
)

// DefaultKillAfter is the default of a handler's kill_after.
const DefaultKillAfter = 10 * time.Second

// leavingSignals are the values of on_leaving: signals that programs catch to save their work.
var leavingSignals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// programSynonyms are those that handlers and runners share.
var programSynonyms = map[string]string{
	"cmd": "command", "argv": "command", "exec": "command", "run": "command", "args": "command",
	"cwd": "dir", "workdir": "dir", "directory": "dir", "environment": "env", "grace": "kill_after",
}

var handlerSynonyms = map[string]string{
	"longjob": "long_job", "long": "long_job", "slice": "long_job.slice", "enqueue_to_queue": "queue",
	"loner": "lock.loner", "unique": "lock.loner", "on_locked": "lock.on_locked", "lock_failed": "lock.on_locked", "class_wide": "lock.class_wide",
	"identifier": "lock.args", "lock_timeout": "lock.timeout", "lock_key": "lock.key", "redis_lock_key": "lock.key", "lock_redis": "lock.redis",
	"attempts": "retry.attempts", "max_attempts": "retry.attempts", "retry_limit": "retry.attempts", "backoff": "retry.backoff", "retry_delay": "retry.backoff",
}

// reserved are variables that the daemon sets for a command or a runner.
var reserved = []string{
	"RESQUED_ROLE", "RESQUED_PROC", "RESQUED_FD", "RESQUED_REPLY_FD", "RESQUED_FORK_FD", "RESQUED_RUNNER", "RESQUED_CONCURRENCY",
}

// readHandlers reads the handlers section. Class names keep dots, colons and case.
func (f *file) readHandlers(section field) {
	for _, class := range f.entriesOf(section, "must be a map of class names to handlers: Thumb: {command: [python3, thumb.py]}") {
		before := len(f.errs)
		if h := f.readHandler(class); len(f.errs) == before {
			f.handlers[class.name] = h
		}
	}
}

// fields are in the order of the documentation.
func (h *Handler) fields() rules {
	return rules{
		{"command", into(&h.Command, (*file).readCommand)},
		{"runner", exact(&h.Runner, checkRunnerName)},
		{"queue", exact(&h.Queue, checkQueue)},
		{"dir", exact(&h.Dir, printable)},
		{"env", into(&h.Env, (*file).readEnv)},
		{"timeout", duration(&h.Timeout, nil).read},
		{"max_run", duration(&h.MaxRun, nil).read},
		{"on_leaving", exact(&h.OnLeaving, checkLeavingSignal)},
		{"kill_after", duration(&h.KillAfter, positive).read},
		{"at_most_once", boolean(&h.AtMostOnce).read},
		{"lock", into(&h.Lock, (*file).readLock)},
		{"retry", into(&h.Retry, (*file).readRetry)},
		{"long_job", into(&h.LongJob, (*file).readLongJob)},
	}
}

func (f *file) readHandler(class field) Handler {
	at := "handlers." + class.name
	if err := checkPattern(class.name); err != nil {
		f.refuse(at, "", class.line, err.Error())
	}
	h := Handler{KillAfter: DefaultKillAfter}
	given, ok := f.readMap(at, class, "must be a map: {command: [python3, thumb.py]}, or {runner: app}", h.fields(), handlerSynonyms, programSynonyms)
	if !ok {
		return h
	}
	if h.AtMostOnce && h.Retry != nil {
		f.refuse(at, "", class.line, "has at_most_once and retry, which contradict each other; keep one of them")
	}
	if h.MaxRun > 0 && len(h.Command) > 0 && h.OnLeaving == "" {
		f.refuse(at+".max_run", "", class.line, "a command is asked to make room by a signal; write on_leaving: USR2 if it catches that, or timeout to end it")
	}
	f.checkLongJob(at, class, h, given)
	switch {
	case given.line("runner") > 0:
		for _, other := range []string{"command", "dir", "env"} {
			if given.line(other) > 0 {
				f.refuse(at+"."+other, "", class.line, "does not go with runner, which has its own; remove one of them")
			}
		}
		if h.OnLeaving != "" {
			f.refuse(at+".on_leaving", "", class.line, "does not go with runner, which is told without a signal; remove it")
		}
		if given.line("kill_after") == 0 {
			h.KillAfter = 0 // the runner's
		}
	case given.line("command") == 0:
		f.refuse(at, "", class.line, "has no command; write command: [python3, thumb.py], or runner: NAME")
	}
	return h
}

func checkLeavingSignal(name string) error {
	plain := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	switch {
	case plain == "KILL", plain == "STOP":
		return errors.New("no program can catch it; write USR2")
	case leavingSignals[plain] != 0 && plain != name:
		return errors.New("write " + plain)
	}
	return among(slices.Sorted(maps.Keys(leavingSignals)))(name)
}

// LeavingSignal returns the signal of OnLeaving, or 0.
func (h Handler) LeavingSignal() syscall.Signal { return leavingSignals[h.OnLeaving] }

func checkClass(name string) error {
	switch {
	case name == "":
		return errors.New("the class name is empty")
	case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		return errors.New("the class name must not hold control characters")
	case strings.TrimSpace(name) != name:
		return errors.New("the class name must not begin or end with a space")
	}
	return nil
}

// checkPattern is checkClass for names and patterns.
func checkPattern(name string) error {
	if err := checkClass(name); err != nil {
		return err
	}
	if strings.HasPrefix(name, "!") {
		return errors.New(`is not a pattern: only lists have exclusions; give these classes a handler of their own`)
	}
	return selector.CheckPattern(name)
}

// checkQueue refuses what cannot be the name of one queue.
func checkQueue(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty; leave it out to name the queue when enqueueing")
	case strings.ContainsAny(name, "*,"):
		return errors.New("must be one queue, not a pattern or a list")
	case strings.TrimSpace(name) != name:
		return errors.New("must not begin or end with a space")
	case strings.HasPrefix(name, "!"):
		return errors.New(`must be one queue, not an exclusion; a name does not begin with "!"`)
	}
	if err := wire.CheckQueue(name); err != nil {
		return err
	}
	return printable(name)
}

func (f *file) readCommand(name string, from field) []string {
	if from.value.Kind == yaml.ScalarNode && !isNull(from.value) {
		example := "[" + strings.Join(strings.Fields(from.value.Value), ", ") + "]"
		if len(example) > maxShown {
			example = "[python3, thumb.py]"
		}
		f.refuse(name, from.value.Value, from.line, fmt.Sprintf("write it as a list, %s; no shell is involved", example))
		return nil
	}
	if from.value.Kind != yaml.SequenceNode {
		f.refuse(name, "", from.line, "must be a list: the program and its arguments")
		return nil
	}
	argv, lines, ok := f.list(name, from.value)
	switch {
	case !ok:
	case len(argv) == 0 || argv[0] == "":
		f.refuse(name, "", from.line, "names no program; write the program first")
	default:
		for i, arg := range argv {
			if hasNUL(arg) {
				f.refuse(name, arg, lines[i], errNUL.Error())
			}
		}
	}
	return argv
}

// readEnv reads a handler's variables. Values may be secret: no message repeats them.
func (f *file) readEnv(name string, from field) map[string]string {
	if from.value.Kind != yaml.MappingNode {
		f.refuse(name, "", from.line, "must be a map of names to values: {RAILS_ENV: production}")
		return nil
	}
	env := map[string]string{}
	for _, variable := range f.fields(from.value, name+".") {
		at := name + "." + variable.name
		value, err := scalar(variable.value)
		switch {
		case err != nil && isNull(variable.value):
			f.refuse(at, "", variable.line, err.Error())
		case err != nil:
			f.refuse(at, "", variable.line, "must be one value; put it in quotes")
		case variable.name == "" || strings.ContainsAny(variable.name, "=\x00"):
			f.refuse(at, "", variable.line, `a variable's name must not be empty and must not hold "="`)
		case slices.Contains(reserved, variable.name), strings.HasPrefix(variable.name, "RESQUED_JOB_"),
			strings.HasPrefix(variable.name, "RESQUED_LOCK_"), strings.HasPrefix(variable.name, "RESQUED_LONG_"):
			f.refuse(at, "", variable.line, "is set by resqued itself; use another name")
		case hasNUL(value):
			f.refuse(at, "", variable.line, errNUL.Error())
		}
		env[variable.name] = value
	}
	return env
}

// CheckPrograms looks for the programs and directories of handlers, runners and host_dead_hook on
// this machine. Missing ones are warnings: the file may be for another machine.
func CheckPrograms(c Config) (warnings []Warning) {
	for _, class := range c.classes() {
		if h := c.Handlers[class]; h.Runner == "" {
			warnings = append(warnings, checkProgram("handlers."+class, class, h.Command, h.Dir)...)
		}
	}
	if len(c.HostDeadHook) > 0 {
		for _, w := range checkProgram("", "host_dead_hook", c.HostDeadHook, "") {
			w.Key = "host_dead_hook"
			warnings = append(warnings, w)
		}
	}
	for _, name := range c.runners() {
		r := c.Runners[name]
		warnings = append(warnings, checkProgram("runners."+name, "runner "+name, r.Command, r.Dir)...)
	}
	return warnings
}

// checkProgram looks for a program. at is its key, who its name in messages.
func checkProgram(at, who string, argv []string, dir string) (warnings []Warning) {
	warn := func(field, code, message string) {
		warnings = append(warnings, Warning{Key: at + "." + field, Code: code, Message: who + ": " + message})
	}
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			warn("dir", "no_directory", fmt.Sprintf("there is no directory %s here", shown(dir)))
			return warnings
		}
	}
	if script := scriptOf(argv); script != "" {
		if why := missingScript(script, dir); why != "" {
			warn("command", "no_script", why)
		}
	}
	program := argv[0]
	if dir != "" && strings.ContainsRune(program, '/') && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	if _, err := exec.LookPath(program); err != nil && !errors.Is(err, exec.ErrDot) {
		hint := ""
		if words := strings.Fields(program); len(words) > 1 && len(argv) == 1 {
			hint = fmt.Sprintf("; its arguments are entries of their own: [%s]", strings.Join(words, ", "))
		}
		warn("command", "no_program", fmt.Sprintf("there is no program %s here, or it may not be executed%s", shown(program), hint))
	}
	return warnings
}
