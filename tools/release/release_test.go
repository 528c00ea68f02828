package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	for described, want := range map[string]string{
		"v1.2.3-0-g133ba66":            "v1.2.3",
		"v1.2.3-rc.1-0-g133ba66":       "v1.2.3-rc.1",
		"v1.2.3-5-g133ba66":            "v1.2.3+5.g133ba66",
		"v1.2.3-rc.1-5-g133ba66-dirty": "v1.2.3-rc.1+5.g133ba66.dirty",
		"v0.0.0-1161-g133ba66":         "v0.0.0+1161.g133ba66",
		"v1.2.3-0-g133ba66-dirty":      "v1.2.3+0.g133ba66.dirty",
	} {
		if got, err := versionOf(described); got != want || err != nil {
			t.Errorf("%s: %s, %v, not %s", described, got, err, want)
		}
	}
	if got, err := versionOf("133ba66"); err == nil {
		t.Errorf("no version is %s", got)
	}
}

const log = "# Changelog\n\n## Unreleased\n\n- **New**: a thing.\n\n## 1.0.0 — 2026-01-02\n\n- The first.\n"

func TestCut(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 11, 25, 23, 0, 0, 0, time.UTC)
	got, err := cutLog(log, "1.1.0", day)
	want := "# Changelog\n\n## Unreleased\n\n## 1.1.0 — 2026-11-25\n\n- **New**: a thing.\n\n## 1.0.0 — 2026-01-02\n\n- The first.\n"
	if got != want || err != nil {
		t.Errorf("%v\n%s", err, got)
	}
	for name, text := range map[string]string{"1.1.0": "- **New**: a thing.", "1.0.0": "- The first.", "Unreleased": ""} {
		if found, ok := section(got, name); found != text || !ok {
			t.Errorf("%s: %q", name, found)
		}
	}
	if _, err := cutLog(got, "1.2.0", day); err == nil {
		t.Error("a release without a line in the changelog")
	}
	if _, err := cutLog(log, "1.0.0", day); err == nil {
		t.Error("the same version twice")
	}
	for _, bad := range []string{"", "1.2", "v1.2.3 4", "1.2.3+5"} {
		if validVersion.MatchString(bad) {
			t.Errorf("%q is a version", bad)
		}
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.0.0": "- The first.", "1.0.0+5.g133ba66": "- **New**: a thing.", "1.1.0-rc.1": "- **New**: a thing.", "1.1.0": "",
	} {
		if got, err := notes(log, version); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

func TestArchiveIsReproducible(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(path(name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	date := time.Unix(1_700_000_000, 0)
	one, two := []entry{{"b", path("b"), 0o755}, {"a", path("a"), 0o644}}, []entry{{"a", path("a"), 0o644}, {"b", path("b"), 0o755}}
	var first, second bytes.Buffer
	if err := writeArchive(&first, "r", one, date); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Hour)
	if err := errors.Join(os.Chtimes(path("a"), now, now), os.Chmod(path("b"), 0o777), writeArchive(&second, "r", two, date)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the archive depends on the order, the times or the modes of the files")
	}
	unzipped, err := gzip.NewReader(&first)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Uid != 0 || h.Uname != "" || !h.ModTime.Equal(date) || !strings.HasPrefix(h.Name, "r/") {
			t.Errorf("%+v, %v", h, err)
		}
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
	all, err := (&repository{root: "../.."}).embedded()
	if err != nil || len(all) != 1 || all[0].path != "idiomorph" {
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
