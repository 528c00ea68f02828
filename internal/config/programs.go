package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/resqued/resqued/internal/selector"
)

// interpreters are programs that run a script, with the options before it that take no value.
var interpreters = map[string]string{
	"python": "-u -B -E -I -O -OO -s -S -q -v -b -bb", "ruby": "-w -W0 -W1 -W2 --yjit --disable-gems", "perl": "-w -T -t", "php": "-q",
	"node": "--enable-source-maps --no-warnings", "bash": "-e -u -x -eu -ex -eux", "sh": "-e -u -x -eu -ex -eux", "dash": "-e -u -x -eu -ex -eux",
	"zsh": "-e -u -x", "ksh": "-e -u -x", "Rscript": "--vanilla", "lua": "", "tclsh": "",
}

var versionEnd = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[0-9.]+$`) })

// scriptOf returns the script that a command's interpreter runs, or "" if that is unclear.
func scriptOf(argv []string) string {
	if filepath.Base(argv[0]) == "env" && len(argv) > 1 && !strings.ContainsAny(argv[1], "=-") {
		argv = argv[1:]
	}
	options, ok := interpreters[versionEnd().ReplaceAllString(filepath.Base(argv[0]), "")]
	if !ok {
		return ""
	}
	for _, arg := range argv[1:] {
		switch {
		case slices.Contains(strings.Fields(options), arg):
		case strings.HasPrefix(arg, "-"), arg == "":
			return ""
		default:
			return arg
		}
	}
	return ""
}

// missingScript returns why a script cannot be run from a directory ("" = this process's), or "".
func missingScript(script, dir string) string {
	path := script
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().IsDir():
		return fmt.Sprintf("%s is a directory, no script", shown(script))
	case err == nil, os.IsPermission(err): // the service's user may be able to read it
		return ""
	case filepath.IsAbs(script):
		return fmt.Sprintf("there is no script %s here", shown(script))
	}
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return ""
		}
		return fmt.Sprintf("there is no script %s in %s, the directory of this process; write the whole path, or set dir", shown(script), shown(dir))
	}
	return fmt.Sprintf("there is no script %s in %s", shown(script), shown(dir))
}

var expansion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\$(\w+|\{\w+\})|\$\(|^~/`) })

// shellText returns the first argument that only a shell or a template would understand.
func shellText(argv []string) (arg, why string) {
	for i, arg := range argv {
		switch {
		case slices.Contains([]string{"|", "||", "&&", ";", ">", ">>", "<", "2>&1", "&"}, arg), expansion().MatchString(arg):
			// Text after -c is for a shell.
			if i == 0 || !slices.Contains(argv[:i], "-c") {
				return arg, "no shell is involved, the program gets it as it is"
			}
		case strings.Contains(arg, "{{") && strings.Contains(arg, "}}"):
			return arg, "nothing of the job is put into the command: the program reads the job from its standard input"
		}
	}
	return "", ""
}

// CheckPIDFile returns Errors if the pidfile's directory does not exist.
func (r *Resolved) CheckPIDFile() error {
	if r.PIDFile == "" {
		return nil
	}
	dir := filepath.Dir(r.PIDFile)
	why := ""
	switch info, err := os.Stat(dir); {
	case os.IsNotExist(err):
		why = fmt.Sprintf("there is no directory %s; make it (under systemd RuntimeDirectory= does), or name another file", dir)
	case err == nil && !info.IsDir():
		why = fmt.Sprintf("%s is not a directory", dir)
	default:
		if info, err := os.Stat(r.PIDFile); err == nil && info.IsDir() {
			why = "is a directory; name a file in it"
		}
	}
	if why == "" {
		return nil
	}
	return Errors{{Key: "pidfile", Value: r.PIDFile, Source: r.Sources["pidfile"], Message: why}}
}

// warnOfHandlers warns of handler settings without effect.
func (l *loader) warnOfHandlers() {
	c := &l.result.Config
	for _, class := range c.classes() {
		h := c.Handlers[class]
		none := func(field, code, format string, a ...any) {
			l.warn("handlers."+class+"."+field, code, class+": "+fmt.Sprintf(format, a...))
		}
		queues := []string{h.Queue}
		if h.LongJob != nil {
			queues = append(queues, h.LongJob.RequeueQueue)
		}
		for _, queue := range queues {
			if selector.Capped(queue) {
				none("queue", selector.OneName, "%q is the queue of that name; a cap belongs into queues.", queue)
			}
		}
		if arg, why := shellText(h.Command); arg != "" {
			none("command", "no_shell", "command holds %s; %s.", shown(arg), why)
		}
		for name, value := range h.Env {
			if expansion().MatchString(value) {
				none("env."+name, "not_expanded", "env.%s is given as it is written: nothing in it is expanded.", name)
			}
		}
		if h.Lock != nil && h.Lock.Timeout > 0 && h.Timeout > h.Lock.Timeout {
			none("timeout", "no_effect", "timeout %s has no effect: lock.timeout %s ends the job before.", FormatDuration(h.Timeout), FormatDuration(h.Lock.Timeout))
		}
		if r := h.Retry; r != nil {
			if r.Attempts == 1 {
				none("retry.attempts", "no_effect", "retry has no effect: with attempts 1, the first run included, a job never runs again.")
			} else if len(r.Backoff) > r.Attempts-1 {
				none("retry.backoff", "no_effect", "of %d waits in retry.backoff only the first %d have an effect: attempts is %d.", len(r.Backoff), r.Attempts-1, r.Attempts)
			}
			for _, both := range r.RetryOn.common(r.NeverOn) {
				none("retry.never_on", "no_effect", "%s is in retry_on and in never_on, which wins.", shown(both))
			}
		}
		if h.LongJob != nil && h.LongJob.CheckIn >= c.LongJobSilence && h.LongJob.CheckIn > 0 {
			none("long_job.check_in", "long_silence", "long_job.check_in %s is not below long_job_silence %s (%s), after which a run is taken for lost.",
				FormatDuration(h.LongJob.CheckIn), FormatDuration(c.LongJobSilence), l.result.Sources["long_job_silence"])
		}
	}
}

// common returns the conditions that both have.
func (e HandlerErrors) common(other HandlerErrors) (both []string) {
	for _, pair := range [][2][]string{{e.Exceptions, other.Exceptions}, {e.Messages, other.Messages}} {
		for _, text := range pair[0] {
			if slices.Contains(pair[1], text) {
				both = append(both, text)
			}
		}
	}
	for _, code := range e.ExitCodes {
		if slices.Contains(other.ExitCodes, code) {
			both = append(both, fmt.Sprint(code))
		}
	}
	return both
}
