package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// defect is a deliberate bug in the product.
type defect struct {
	// invariant is the promise that it breaks; name describes the bug.
	invariant, name string
	edits           []edit
	// in is the scenario that shows it; one of its checks has to find the defect.
	in scenario
	by []string
}

// edit replaces a text that occurs in a file exactly once.
type edit struct{ file, from, to string }

// errStale reports that the product has changed, so that a defect must be adapted.
var errStale = errors.New("the seed of a defect is stale")

// shownBy reports whether a check is one of those that have to find the defect, given by number
// or by the beginning of their names.
func (d *defect) shownBy(check string) bool {
	return slices.ContainsFunc(d.by, func(name string) bool {
		rest, ok := strings.CutPrefix(check, name)
		return ok && strings.TrimLeft(rest, "0123456789") == rest // C1 is not C12
	})
}

// check checks that each edit applies.
func (d *defect) check(root string) error {
	_, err := d.broken(root)
	return err
}

// broken returns the edited files by name.
func (d *defect) broken(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range d.edits {
		path := filepath.Join(root, e.file)
		text, ok := texts[path]
		if !ok {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.from); n != 1 {
			return nil, fmt.Errorf("%w: %s: %s holds %d times, not once:\n%s", errStale, d.name, e.file, n, e.from)
		}
		texts[path] = strings.Replace(text, e.from, e.to, 1)
	}
	return texts, nil
}

// build builds the harness with the defect.
func (d *defect) build(ctx context.Context, root, dir, program string) error {
	texts, err := d.broken(root)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for path, text := range texts {
		name := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		replace[path] = name
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	if err := build(ctx, root, program, "-overlay", file); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}

func build(ctx context.Context, root, program string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", program, "./test/chaos"})...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// moduleRoot is the directory of go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	return filepath.Dir(string(bytes.TrimSpace(out))), nil
}
