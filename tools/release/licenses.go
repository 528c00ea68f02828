package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Permitted licences of dependencies: of the released programs, and of what only tests need.
// Adding one is a decision, not an accident.
var (
	allowedLinked = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unlicense"} // BSL is that of Boost
	allowedTests  = append([]string{"MPL-2.0"}, allowedLinked...)
)

// recognized is how much of a text must match a known licence, in percent. The rest is the
// owner's name, a title, a list of authors.
const recognized = 75

// dependency is a module, or the standard library, or a package of npm that is embedded.
type dependency struct {
	path, version, kind string
	// licenses are SPDX identifiers, in order.
	licenses []string
	// texts are the files, by their path in the dependency.
	texts map[string][]byte
}

const (
	goModule   = "golang"
	npmPackage = "npm"
	standard   = "std"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([.-].*)?$|\.LICENSE$`)

// releaseTargets are those of a release.
var releaseTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

func linked(root string, targets ...string) ([]dependency, error) {
	var packages []listed
	for _, target := range targets {
		system, arch, _ := strings.Cut(target, "/")
		some, err := list(root, []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch}, "./cmd/resqued")
		if err != nil {
			return nil, err
		}
		packages = append(packages, some...)
	}
	return dependencies(root, packages)
}

// list describes packages and everything that they import.
func list(root string, env []string, args ...string) (packages []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module"}, args...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = root, os.Stderr, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

func dependencies(root string, packages []listed) ([]dependency, error) {
	found := map[string]*dependency{}
	get := func(kind, path, version string) *dependency {
		if found[kind+path] == nil {
			found[kind+path] = &dependency{path: path, version: version, kind: kind, texts: map[string][]byte{}}
		}
		return found[kind+path]
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err := get(standard, "std", version).read(goroot, goroot); err != nil {
		return nil, err
	}
	for _, p := range packages {
		switch {
		case p.Standard:
		case p.ImportPath == module+"/internal/web/pages":
			assets, err := embedded(root)
			if err != nil {
				return nil, err
			}
			for name, version := range assets {
				text, err := os.ReadFile(filepath.Join(p.Dir, "assets", name+".LICENSE"))
				if err != nil {
					return nil, err
				}
				get(npmPackage, name, version).texts["LICENSE"] = text
			}
		case p.Module.Main:
		default:
			// From the package up to its module: some contain code of others, with its licence.
			d := get(goModule, p.Module.Path, p.Module.Version)
			for folder := p.Dir; ; folder = filepath.Dir(folder) {
				if err := d.read(p.Module.Dir, folder); err != nil {
					return nil, err
				}
				if folder == p.Module.Dir {
					break
				}
			}
		}
	}
	var all []dependency
	for _, d := range found {
		if err := d.recognize(); err != nil {
			return nil, err
		}
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b dependency) int { return strings.Compare(a.kind+a.path, b.kind+b.path) })
	return all, nil
}

// read reads the licence files of a folder of the dependency.
func (d *dependency) read(root, folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.IsDir() || !licenseFile.MatchString(file.Name()) || strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		path := filepath.Join(folder, file.Name())
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.texts[name], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	return nil
}

// recognize determines the licences of the dependency. A NOTICE or a patent grant does not
// count.
func (d *dependency) recognize() error {
	if len(d.texts) == 0 {
		return fmt.Errorf("%s %s has no file with a licence", d.path, d.version)
	}
	for name, text := range d.texts {
		if base := strings.ToUpper(filepath.Base(name)); strings.HasPrefix(base, "NOTICE") || strings.HasPrefix(base, "PATENTS") {
			continue
		}
		cover := licensecheck.Scan(text)
		if len(cover.Match) == 0 || cover.Percent < recognized {
			return fmt.Errorf("%s %s: %s is of no known licence (%.0f %%)", d.path, d.version, name, cover.Percent)
		}
		for _, match := range cover.Match {
			if !slices.Contains(d.licenses, match.ID) {
				d.licenses = append(d.licenses, match.ID)
			}
		}
	}
	slices.Sort(d.licenses)
	return nil
}

func allowed(all []dependency, list []string) (err error) {
	for _, d := range all {
		for _, id := range d.licenses {
			if !slices.Contains(list, id) {
				err = errors.Join(err, fmt.Errorf("%s %s is under %s, which is not in the list of tools/release/licenses.go", d.path, d.version, id))
			}
		}
	}
	return err
}

func licenseTexts(all []dependency) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "resqued contains the following software, under these licences.\n")
	for _, d := range all {
		fmt.Fprintf(&out, "\n%s\n%s %s (%s)\n", strings.Repeat("=", 79), d.path, d.version, strings.Join(d.licenses, ", "))
		for _, name := range slices.Sorted(maps.Keys(d.texts)) {
			fmt.Fprintf(&out, "\n--- %s\n\n%s\n", name, bytes.TrimSpace(d.texts[name]))
		}
	}
	return out.Bytes()
}

// checkLicenses checks the licences of all dependencies, including those of the tests.
func checkLicenses(root string, out io.Writer) error {
	linked, err := linked(root, releaseTargets...)
	if err != nil {
		return err
	}
	packages, err := list(root, nil, "-test", "./...")
	if err != nil {
		return err
	}
	all, err := dependencies(root, packages)
	if err != nil {
		return err
	}
	for _, d := range linked {
		if _, err := fmt.Fprintf(out, "%-55s %s\n", d.path+" "+d.version, strings.Join(d.licenses, ", ")); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(out, "%d linked, %d with those of tests\n", len(linked), len(all)); err != nil {
		return err
	}
	return errors.Join(allowed(linked, allowedLinked), allowed(all, allowedTests))
}

var assetLine = regexp.MustCompile(`(?m)^\s*([\w@/-]+) (\d\S*) \S+== .*=\$pages/`)

// embedded returns the versions of the packages of npm whose files the dashboard embeds.
func embedded(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "scripts/vendor-assets"))
	versions := map[string]string{}
	for _, match := range assetLine.FindAllSubmatch(text, -1) {
		versions[string(match[1])] = string(match[2])
	}
	return versions, err
}
