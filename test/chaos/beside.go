package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errNoHistory means that git does not have the commit, as in a shallow clone or an unpacked
// archive.
var errNoHistory = errors.New("no such commit here")

// buildBeside builds the program of another commit into dir and returns its path. The error is
// errNoHistory if git does not have that commit.
func buildBeside(ctx context.Context, commit, dir string) (program string, err error) {
	found, err := output(ctx, "", "git", "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("%w: %s", errNoHistory, commit)
	}
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	tree, archive := filepath.Join(dir, "beside-source"), filepath.Join(dir, "beside.tar")
	defer func() { err = errors.Join(err, os.RemoveAll(tree), os.RemoveAll(archive)) }()
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	if _, err := output(ctx, root, "git", "archive", "--output="+archive, found); err != nil {
		return "", err
	}
	if _, err := output(ctx, tree, "tar", "-xf", archive); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "beside")
	if _, err := output(ctx, tree, "go", "build", "-o", program, "./test/chaos"); err != nil {
		return "", fmt.Errorf("build commit %s: %w", commit, err)
	}
	return program, nil
}

// output runs a command and returns its output. The error has the end of its stderr.
func output(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the commands above
	var out, said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &said
	if err := cmd.Run(); err != nil {
		text := said.String()
		return "", fmt.Errorf("%s: %w %s", strings.Join(argv[:2], " "), err, text[max(0, len(text)-2000):])
	}
	return strings.TrimSpace(out.String()), nil
}

// build builds the program of -previous into a new directory, unless git does not have the
// commit. remove removes the directory.
func (o *options) build(ctx context.Context) (remove func(), err error) {
	remove = func() {}
	if o.previous == "" {
		return remove, nil
	}
	dir, err := os.MkdirTemp("", "chaos-beside-")
	if err != nil {
		return remove, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	began := time.Now()
	o.built, err = buildBeside(ctx, o.previous, dir)
	if errors.Is(err, errNoHistory) {
		fmt.Printf("chaos: no other version beside this one: %v\n", err)
		return remove, nil
	}
	if err == nil {
		fmt.Printf("chaos: commit %s was built in %s\n", o.previous, time.Since(began).Round(time.Second))
	}
	return remove, err
}

// findBeside gives the daemons the program of another version, if one was built. Each start of a
// daemon alternates between the two, as if the fleet were upgraded and rolled back all the time.
func (c *chaos) findBeside() error {
	if c.o.built == "" {
		return nil
	}
	for i, m := range c.daemons() {
		m.beside, m.turn = c.o.built, (i+1)%2
		if m.user == 0 {
			continue
		}
		// Its user can access only the directory of the run.
		m.beside = filepath.Join(c.dir, "daemon-beside")
		if err := copyFile(c.o.built, m.beside); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	fmt.Printf("chaos: each daemon is now this version, now commit %s, by turns\n", c.o.previous)
	return nil
}

// nextProgram returns the program for the next start of the daemon.
func (m *machine) nextProgram() string {
	if m.beside == "" {
		return m.program
	}
	m.turn++
	if m.turn%2 == 0 {
		return m.beside
	}
	return m.program
}
