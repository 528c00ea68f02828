package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

// static has the settings of builds. The program that makes pages and completions is built with
// the same ones, so the released program shares all but the last step of its build.
var static = []string{"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOTOOLCHAIN=local"}

type build struct {
	*repository
	version            string
	out, only, targets string

	// work is where the parts are assembled. dependencies are the programs'.
	work string
	deps []dependency
}

type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

func (b *build) run() (err error) {
	if b.only != "" && b.only != "archives" && b.only != "packages" {
		return fmt.Errorf("-only %q: archives or packages", b.only)
	}
	var targets []target
	for text := range strings.SplitSeq(b.targets, ",") {
		system, arch, ok := strings.Cut(text, "/")
		if !ok {
			return fmt.Errorf("-targets %q: write linux/amd64", text)
		}
		if b.only != "packages" || system == "linux" {
			targets = append(targets, target{system, arch})
		}
	}
	if b.out, err = filepath.Abs(b.out); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "resqued-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	// Remains of an earlier build would be listed and signed as part of this one.
	old, err := filepath.Glob(filepath.Join(b.out, "resqued_*"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	fmt.Printf("release: %s of %s\n", b.version, b.date.Format("2006-01-02"))
	if err := b.common(targets); err != nil {
		return err
	}
	for _, t := range targets {
		if err := b.target(t); err != nil {
			return err
		}
	}
	return b.checksums()
}

// common makes the files in work that are the same for all targets.
func (b *build) common(targets []target) (err error) {
	if b.deps, err = b.linked(targets); err != nil {
		return err
	}
	if err := allowed(b.deps, allowedLinked); err != nil {
		return err
	}
	if err := b.write("THIRD_PARTY_LICENSES", licenseTexts(b.deps)); err != nil {
		return err
	}
	pages := b.command(static, "go", "run", "-trimpath", "./internal/cli/manual", "-version", b.version, "-date", b.date.Format("2006-01-02"), filepath.Join(b.work, "man"))
	if err := pages.Run(); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	// Debian requires changes in its own format.
	changes := fmt.Sprintf("resqued (%s) stable; urgency=medium\n\n  * See /usr/share/doc/resqued/CHANGELOG.md.\n\n -- The resqued authors <resqued@users.noreply.github.com>  %s\n",
		strings.ReplaceAll(b.version, "-", "~"), b.date.UTC().Format(time.RFC1123Z))
	if err := b.writeGzip("packaged/changelog.gz", []byte(changes)); err != nil {
		return err
	}
	for _, name := range []string{"resqued.1", "resqued.yaml.5"} {
		page, err := os.ReadFile(filepath.Join(b.work, "man", name))
		if err != nil {
			return err
		}
		if err := b.writeGzip("man/"+name+".gz", page); err != nil {
			return err
		}
	}
	for shell, name := range map[string]string{"bash": "resqued.bash", "zsh": "_resqued", "fish": "resqued.fish"} {
		script, err := b.command(static, "go", "run", "-trimpath", "./cmd/resqued", "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		if err := b.write("completions/"+name, script); err != nil {
			return err
		}
	}
	return b.units()
}

// units copies systemd's units. Packages have their program in /usr/bin.
func (b *build) units() error {
	units, err := filepath.Glob(b.path("deploy/systemd/*"))
	if err != nil {
		return err
	}
	for _, path := range units {
		if strings.HasSuffix(path, ".go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		packaged := strings.ReplaceAll(string(text), "/usr/local/bin/resqued", "/usr/bin/resqued")
		name := filepath.Base(path)
		place := "packaged/units/" + name
		if example, ok := strings.CutSuffix(name, ".example"); ok {
			place = "packaged/examples/" + example
		}
		if err := errors.Join(b.write("systemd/"+name, text), b.write(place, []byte(packaged))); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) write(name string, content []byte) error {
	path := filepath.Join(b.work, name)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644))
}

func (b *build) writeGzip(name string, content []byte) error {
	var out strings.Builder
	// Without name and time, so the same content is the same file.
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return b.write(name, []byte(out.String()))
}

// target builds the program of a target, and its archive and packages.
func (b *build) target(t target) error {
	program := filepath.Join(b.work, t.String(), "resqued")
	compile := b.command(append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, static...),
		"go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -buildid= -X github.com/resqued/resqued/internal/cli.Version="+b.version,
		"-o", program, "./cmd/resqued")
	if err := compile.Run(); err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	name := "resqued_" + b.version + "_" + t.String()
	if err := b.sbom(t, program, filepath.Join(b.out, name+".cdx.json")); err != nil {
		return fmt.Errorf("%s: software bill of materials: %w", t, err)
	}
	if b.only != "packages" {
		if err := b.archive(t, program, name); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	if b.only == "archives" || t.os != "linux" {
		return nil
	}
	for _, kind := range []string{"deb", "rpm"} {
		if err := b.packages(t, program, kind); err != nil {
			return fmt.Errorf("%s: %s: %w", t, kind, err)
		}
	}
	return nil
}

// packages makes a package with nfpm. Its file name has the version as tagged: download sites
// would change the ~ of prereleases.
func (b *build) packages(t target, program, kind string) error {
	file := filepath.Join(b.out, "resqued_"+b.version+"_"+t.arch+"."+kind)
	cmd := b.command([]string{
		"VERSION=" + b.version, "ARCH=" + t.arch, "PROGRAM=" + program, "WORK=" + b.work,
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(b.date.Unix(), 10),
	}, "go", "tool", "-modfile=tools/go.mod", "nfpm", "package", "-f", "deploy/package/nfpm.yaml", "-p", kind, "-t", file)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return b.made(file)
}

func (b *build) made(file string) error {
	info, err := os.Stat(file)
	if err == nil {
		fmt.Printf("release: %s, %.1f MiB\n", filepath.Base(file), float64(info.Size())/(1<<20))
	}
	return err
}

func (b *build) checksums() error {
	var lines []string
	err := filepath.WalkDir(b.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "resqued_") {
			return err
		}
		content, err := os.ReadFile(path)
		sum := sha256.Sum256(content)
		lines = append(lines, hex.EncodeToString(sum[:])+"  "+filepath.Base(path)+"\n")
		return err
	})
	if err != nil {
		return err
	}
	// By name.
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(b.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
