// Command licenses checks under which licences all is that resqued's programs are made of: each
// module has to have one of those below, by its text. With -texts it prints the texts, for packages
// that have to bring them along.
//
//	go -C tools run ./licenses
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// known are the licences that may be in a program, each with words of its text that no other has.
// The first that fits counts.
var known = []struct {
	name  string
	words []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0", "TERMS AND CONDITIONS"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "Neither the name"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"ISC", []string{"Permission to use, copy, modify, and/or distribute this software", "above copyright notice"}},
	{"ISC", []string{"Permission to use, copy, modify, and distribute this software for any purpose", "above copyright notice"}},
	{"0BSD", []string{"Permission to use, copy, modify, and/or distribute this software"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "without restriction"}},
	{"Unlicense", []string{"This is free and unencumbered software released into the public domain"}},
}

// refused are words of licences that ask for more than to be named, whatever else a text says.
var refused = []string{"GNU GENERAL PUBLIC LICENSE", "GNU AFFERO", "GNU LESSER", "Business Source License", "Server Side Public License", "Commons Clause"}

// platforms are those for which the programs are built.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64"}

// shipped are the packages that programs are made of.
var shipped = []string{"./cmd/...", "./daemon", "./client", "./locker", "./longjob/...", "./web", "./resquedtest"}

// license is the licence of a module.
type license struct {
	Module, Version string
	Name            string // of known
	Files           []string
}

func main() {
	root := flag.String("root", "..", "the repository")
	texts := flag.Bool("texts", false, "print the texts")
	flag.Parse()
	all, err := collect(*root)
	for _, l := range all {
		if !*texts {
			fmt.Printf("%-14s %s %s\n", l.Name, l.Module, l.Version)
			continue
		}
		for _, file := range l.Files {
			text, _ := os.ReadFile(file)
			fmt.Printf("%s %s\n%s\n\n%s\n\n", l.Module, l.Version, strings.Repeat("-", 72), strings.TrimSpace(string(text)))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// collect returns the licences of all modules in the programs, the standard library included, and
// of the files that lie in the repository with a licence of their own.
func collect(root string) ([]license, error) {
	found := map[string]license{}
	var errs []error
	for _, platform := range platforms {
		modules, err := list(root, platform)
		if err != nil {
			return nil, err
		}
		for _, m := range modules {
			if _, there := found[m.Path]; there {
				continue
			}
			l, err := of(m)
			errs = append(errs, err)
			found[m.Path] = l
		}
	}
	var all []license
	for _, l := range found {
		all = append(all, l)
	}
	assets, err := filepath.Glob(filepath.Join(root, "internal/web/pages/assets/*.LICENSE"))
	errs = append(errs, err)
	for _, file := range assets {
		name := strings.TrimSuffix(filepath.Base(file), ".LICENSE")
		l := license{Module: name, Version: "(in the dashboard)", Files: []string{file}}
		l.Name, err = classify(name, l.Files)
		errs = append(errs, err)
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b license) int { return strings.Compare(a.Module, b.Module) })
	return all, errors.Join(errs...)
}

// list returns the modules whose packages are in a program for a platform.
func list(root, platform string) ([]module, error) {
	system, processor, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module,Standard"}, shipped...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+system, "GOARCH="+processor)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w", platform, err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	all := map[string]module{"std": {Path: "std", Version: "(Go)", Dir: strings.TrimSpace(string(goroot))}}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if m := p.Module; m != nil && !m.Main {
			if m.Replace != nil {
				m = m.Replace
			}
			all[m.Path] = *m
		}
	}
	var modules []module
	for _, m := range all {
		modules = append(modules, m)
	}
	return modules, nil
}

func of(m module) (license, error) {
	l := license{Module: m.Path, Version: m.Version, Name: "?"}
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return l, fmt.Errorf("%s: %w", m.Path, err)
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(strings.ToUpper(e.Name()), ".")
		if !e.IsDir() && (name == "LICENSE" || name == "LICENCE" || name == "COPYING" || name == "NOTICE" || strings.HasPrefix(name, "LICENSE-")) {
			l.Files = append(l.Files, filepath.Join(m.Dir, e.Name()))
		}
	}
	l.Name, err = classify(m.Path, l.Files)
	return l, err
}

// classify returns the licences of texts.
func classify(of string, files []string) (string, error) {
	var names []string
	for _, file := range files {
		if strings.HasPrefix(strings.ToUpper(filepath.Base(file)), "NOTICE") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return "?", err
		}
		text := strings.Join(strings.Fields(string(data)), " ")
		for _, words := range refused {
			if strings.Contains(strings.ToUpper(text), strings.ToUpper(words)) && !strings.Contains(text, "Mozilla Public License") {
				return "?", fmt.Errorf("%s: its licence (%s) has %q", of, filepath.Base(file), words)
			}
		}
		i := slices.IndexFunc(known, func(k struct {
			name  string
			words []string
		},
		) bool {
			return !slices.ContainsFunc(k.words, func(w string) bool { return !strings.Contains(text, w) })
		})
		if i < 0 {
			return "?", fmt.Errorf("%s: its licence (%s) is none that tools/licenses knows", of, filepath.Base(file))
		}
		if !slices.Contains(names, known[i].name) {
			names = append(names, known[i].name)
		}
	}
	if names == nil {
		return "?", fmt.Errorf("%s: it has no licence", of)
	}
	return strings.Join(names, ", "), nil
}
