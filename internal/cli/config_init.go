package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
)

const starterFile = "resqued.yaml"

func (a *cli) configInitCommand() *cobra.Command {
	var force bool
	return a.command(verb{
		use: "init [FILE]", kind: noRedis, short: "write a first configuration with values for this machine",
		long: `Write a configuration file with comments: a worker process per processor, with
8 to 16 threads, replaced after a thousand jobs or when it grows. It is valid as
it is; add your queues and handlers. FILE is ./` + starterFile + ` by default,
- is standard output. An existing file is kept without --force.

--redis-url and --namespace are written into it; the environment is not.`,
		example: "config init\nconfig init --redis-url redis://db:6379/0 - | less",
		args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly(1, "one file")(c, args)
			}
			return nil
		},
		flags: func(f *flagSet) { f.BoolVar(&force, "force", false, "replace a file that exists") },
		do: func(c *cobra.Command, args []string) error {
			file := starterFile
			if len(args) > 0 {
				file = args[0]
			}
			return a.configInit(c, file, force)
		},
	})
}

type initReport struct {
	File string `json:"file"`
	config.Tuning
}

func (a *cli) configInit(c *cobra.Command, file string, force bool) error {
	s := config.Starter{Program: a.name, Tuning: app.Tuning()}
	if f := c.Flags().Lookup("redis-url"); f.Changed {
		s.RedisURL = f.Value.String()
	}
	if f := c.Flags().Lookup("namespace"); f.Changed {
		s.Namespace = f.Value.String()
	}
	if u, err := url.Parse(s.RedisURL); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return usage("Leave it out of the URL, and name a file with redis_password_file in the configuration.",
				"--redis-url holds a password, which does not belong into a configuration that others may read")
		}
	}
	for _, class := range a.handlers.Classes() {
		if known, ok := a.handlers.Lookup(class); ok && known.Queue != "" && !slices.Contains(s.Queues, known.Queue) {
			s.Queues = append(s.Queues, known.Queue)
		}
	}
	// Check that the result is valid for any flags.
	text := s.Text()
	if err := checkStarter(text); err != nil {
		return err
	}
	if file == "-" {
		return a.printText(text)
	}
	if err := writeNew(file, text, force); err != nil {
		return err
	}
	if a.flags.output == outJSON {
		return a.printJSON(initReport{File: file, Tuning: s.Tuning})
	}
	if a.flags.quiet {
		return nil
	}
	return a.printText(fmt.Sprintf("%s: worker_count %d × thread_count %d; put your queues and handlers in\n", file, s.WorkerCount, s.ThreadCount))
}

func checkStarter(text string) error {
	dir, err := os.MkdirTemp("", "resqued-init-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, starterFile)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	_, err = config.Load(config.Options{File: path, Environ: []string{}, NeedQueues: true})
	return configProblem(err)
}

// writeNew writes a file. Without force it must not exist; with it, it is replaced atomically. The
// configuration has no secrets, and the service's user must be able to read it.
func writeNew(file, text string, force bool) error {
	const mode = 0o644
	if !force {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			return usage("To replace it: --force. To see what would be written: config init -", "%s exists already", file)
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return usage("", "%s is not a regular file", file)
	}
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // the link stays
	}
	return replaceFile(file, []byte(text), mode)
}

// replaceFile replaces a file atomically and keeps its owner.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if info, err := os.Stat(path); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(owner.Uid), int(owner.Gid))
		}
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
