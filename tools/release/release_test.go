package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestScript runs scripts/release with a repository and a changelog of its own.
func TestScript(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	script, err := os.ReadFile("../../scripts/release")
	if err != nil {
		t.Fatal(err)
	}
	const log = "# Changelog\n\n## Unreleased\n\n- **New**: a thing.\n\n## 1.0.0 — 2026-01-02\n\n- The first.\n"
	for name, text := range map[string]string{"scripts/release": string(script), "CHANGELOG.md": log} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	sh := func(script string) (string, error) {
		cmd := exec.Command("sh", "-ec", "release() { sh scripts/release \"$@\"; }\n"+script)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for _, c := range []struct{ script, want string }{
		{`git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm one && release version | sed 's/g.*/g/'`, "0.0.0+1.g"},
		{`git tag v1.2.3-rc.1 && release version`, "1.2.3-rc.1"},
		{`echo >>scripts/release && release version | sed 's/g[^.]*/g/'`, "1.2.3-rc.1+0.g.dirty"},
		{`git -c user.name=a -c user.email=a@b commit -qam two && release version | sed 's/g[^.]*/g/'`, "1.2.3-rc.1+1.g"},
		{`VERSION=v1.0.0 release notes`, "- The first."},
		{`VERSION=1.0.0+5.g133ba66 release notes`, "- **New**: a thing."},
		{`VERSION=1.1.0-rc.1 release notes`, "- **New**: a thing."},
		{`VERSION=1.1.0 release notes`, ""},
		{`release cut v1.0.0`, ""},
		{`release cut ''`, ""},
		{`release cut 1.2`, ""},
		{`release cut 'v1.2.3 4'`, ""},
		{`release cut 1.2.3+5`, ""},
		{`release cut v1.1.0 && sed "s/$(date -u +%F)/DAY/" CHANGELOG.md`, strings.TrimSpace(strings.Replace(log, "Unreleased\n", "Unreleased\n\n## 1.1.0 — DAY\n", 1))},
		{`VERSION=1.1.0 release notes`, "- **New**: a thing."},
		{`release cut v1.2.0`, ""}, // without a line in the changelog
	} {
		if out, err := sh(c.script); (err == nil) != (c.want != "") || err == nil && out != c.want {
			t.Errorf("%s: %v, %q", c.script, err, out)
		}
	}
}

func TestArchiveIsReproducible(t *testing.T) {
	t.Parallel()
	date := time.Unix(1_700_000_000, 0)
	var made [2]bytes.Buffer
	for i, umask := range []os.FileMode{0o777, 0o700} {
		folder := filepath.Join(t.TempDir(), "r")
		for name, mode := range map[string]os.FileMode{"a": 0o644, "b/program": 0o755, "c": 0o600} {
			path := filepath.Join(folder, name)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), mode&umask),
				os.Chtimes(path, time.Time{}, date.Add(time.Duration(i)*time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := writeArchive(&made[i], folder, date); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0].Bytes(), made[1].Bytes()) {
		t.Error("the archive depends on the times or the modes of the files")
	}
	unzipped, err := gzip.NewReader(&made[0])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Uid != 0 || h.Uname != "" || !h.ModTime.Equal(date) {
			t.Fatalf("%+v, %v", h, err)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "r/a r/b/program r/c" {
		t.Error(got)
	}
}

const mit = `MIT License

Copyright (c) 2026 The authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

func TestLicenses(t *testing.T) {
	t.Parallel()
	of := func(files map[string]string) (*dependency, error) {
		d := &dependency{path: "example.com/d", version: "v1.0.0", texts: map[string][]byte{}}
		for name, text := range files {
			d.texts[name] = []byte(text)
		}
		return d, d.recognize()
	}
	d, err := of(map[string]string{"LICENSE": mit, "NOTICE": "It was written by many."})
	if err != nil || len(d.licenses) != 1 || d.licenses[0] != "MIT" {
		t.Errorf("%v, %v", d.licenses, err)
	}
	if err := allowed([]dependency{*d}, allowedLinked); err != nil {
		t.Error(err)
	}
	if err := allowed([]dependency{{path: "example.com/d", licenses: []string{"AGPL-3.0"}}}, allowedLinked); err == nil {
		t.Error("AGPL-3.0 is allowed")
	}
	for name, files := range map[string]map[string]string{
		"none":    {},
		"unknown": {"LICENSE": "You may look at this, and nothing else, on days with a y."},
	} {
		if d, err := of(files); err == nil {
			t.Errorf("%s: %v", name, d.licenses)
		}
	}
	for name, is := range map[string]bool{
		"LICENSE": true, "LICENCE.txt": true, "COPYING": true, "LICENSE-MIT": true, "idiomorph.LICENSE": true, "NOTICE": true,
		"license_test": false, "README.md": false, "licenses": false,
	} {
		if licenseFile.MatchString(name) != is {
			t.Error(name)
		}
	}
	if text := string(licenseTexts([]dependency{*d})); !strings.Contains(text, "example.com/d v1.0.0 (MIT)") || !strings.Contains(text, "written by many") {
		t.Error(text)
	}
}

// Embedded packages are found in the script that fetches them.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	all, err := embedded("../..")
	if err != nil || len(all) != 1 || all["idiomorph"] == "" {
		t.Errorf("%v, %v", all, err)
	}
}

func TestSerial(t *testing.T) {
	t.Parallel()
	a, b := serial(sha256.Sum256([]byte("a"))), serial(sha256.Sum256([]byte("b")))
	if a == b || len(a) != len("urn:uuid:00000000-0000-8000-8000-000000000000") || a[len("urn:uuid:00000000-0000-")] != '8' {
		t.Error(a, b)
	}
}
