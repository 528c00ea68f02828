// Release builds a release so that two builds of one commit are equal byte for byte:
//
//	release build [-only archives|packages] [-targets LIST] [-version V] [-out FOLDER]
//	release notes [-version V]     what the changelog says of a version
//	release cut -version V         give what is unreleased in the changelog its version
//	release licenses               check the licences of all dependencies
//
// Run it in the folder tools, whose module has its dependencies; see docs/releasing.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("it takes one of build, notes, cut, licenses")
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	root := flags.String("root", "..", "`folder` of the repository")
	version := flags.String("version", "", "`version` to build; default: from the tags of git")
	var b build
	if args[0] == "build" {
		flags.StringVar(&b.out, "out", "../dist", "`folder` for what is built")
		flags.StringVar(&b.only, "only", "", "only archives, or only packages")
		flags.StringVar(&b.targets, "targets", defaultTargets, "`systems` and processors")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	repo, err := openRepository(*root)
	if err != nil {
		return err
	}
	if *version == "" && args[0] != "cut" {
		if *version, err = repo.version(); err != nil {
			return err
		}
	}
	switch args[0] {
	case "build":
		b.repository, b.version = repo, strings.TrimPrefix(*version, "v")
		return b.run()
	case "notes":
		return repo.printNotes(os.Stdout, *version)
	case "cut":
		return repo.cut(*version, time.Now())
	case "licenses":
		return repo.checkLicenses(os.Stdout)
	}
	return fmt.Errorf("%q: it takes one of build, notes, cut, licenses", args[0])
}

// repository is a clone of resqued.
type repository struct {
	root string
	// date is the commit's, or SOURCE_DATE_EPOCH: all generated files have it.
	date time.Time
}

func openRepository(root string) (*repository, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	r := &repository{root: root}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.output("git", "log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.date = time.Unix(n, 0).UTC()
	return r, nil
}

func (r *repository) path(name string) string { return filepath.Join(r.root, name) }

// version returns git's version: v1.2.3 for a tag, and for a commit after it a version between
// that tag and the next.
func (r *repository) version() (string, error) {
	described, err := r.output("git", "describe", "--tags", "--long", "--match", "v[0-9]*", "--dirty")
	if err != nil {
		described, err = r.output("git", "describe", "--always", "--dirty")
		if err != nil {
			return "", err
		}
		count, err := r.output("git", "rev-list", "--count", "HEAD")
		if err != nil {
			return "", err
		}
		described = "v0.0.0-" + count + "-g" + described
	}
	return versionOf(described)
}

// versionOf makes a version of the output of git describe --long. For commits after a tag it
// adds build metadata: packages would take a prerelease for older than the tag.
func versionOf(described string) (string, error) {
	text, dirty := strings.CutSuffix(described, "-dirty")
	parts := strings.Split(text, "-")
	if len(parts) < 3 {
		return "", fmt.Errorf("git describe says %q", described)
	}
	n := len(parts)
	tag, behind, commit := strings.Join(parts[:n-2], "-"), parts[n-2], parts[n-1]
	switch {
	case behind == "0" && !dirty:
		return tag, nil
	case dirty:
		return tag + "+" + behind + "." + commit + ".dirty", nil
	}
	return tag + "+" + behind + "." + commit, nil
}

// command returns a program that runs in the repository, with additions to the environment.
func (r *repository) command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func (r *repository) output(name string, args ...string) (string, error) {
	cmd := r.command(nil, name, args...)
	cmd.Stderr = nil
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
