package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mit     = "MIT License\n\nPermission is hereby granted, free of charge, to any person … without\nrestriction, including"
	bsd     = "Redistribution and use in source and binary forms, … Neither the name of the holder"
	isc     = "Permission to use, copy, modify, and/or distribute this software … provided that the above copyright notice"
	zerobsd = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted."
	gpl     = "GNU GENERAL PUBLIC LICENSE Version 3"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string // a licence, or part of an error
	}{
		"MIT":              {map[string]string{"LICENSE": mit}, "MIT"},
		"BSD":              {map[string]string{"LICENSE.md": bsd}, "BSD-3-Clause"},
		"ISC":              {map[string]string{"COPYING": isc}, "ISC"},
		"0BSD":             {map[string]string{"LICENSE.txt": zerobsd}, "0BSD"},
		"two":              {map[string]string{"LICENSE": mit, "LICENSE-BSD": bsd}, "MIT, BSD-3-Clause"},
		"a notice besides": {map[string]string{"LICENSE": mit, "NOTICE": "made by many"}, "MIT"},
		"one that binds":   {map[string]string{"LICENSE": gpl}, `has "GNU GENERAL PUBLIC LICENSE"`},
		"one beside MIT":   {map[string]string{"LICENSE": mit, "COPYING": gpl}, `has "GNU GENERAL PUBLIC LICENSE"`},
		"one that is new":  {map[string]string{"LICENSE": "Do what you like."}, "none that tools/licenses knows"},
		"none":             {map[string]string{"README": mit}, "it has no licence"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l, err := of(module{Path: "example.com/m", Dir: dir})
			got := l.Name
			if err != nil {
				got = err.Error()
			}
			if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
