package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

const (
	changelog  = "CHANGELOG.md"
	unreleased = "Unreleased"
)

var validVersion = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func section(log, name string) (text string, ok bool) {
	for part := range strings.SplitSeq("\n"+log, "\n## ") {
		heading, body, _ := strings.Cut(part, "\n")
		if first, _, _ := strings.Cut(heading, " "); first == name {
			return strings.TrimSpace(body), true
		}
	}
	return "", false
}

func (r *repository) printNotes(out io.Writer, version string) error {
	log, err := os.ReadFile(r.path(changelog))
	if err != nil {
		return err
	}
	text, err := notes(string(log), strings.TrimPrefix(version, "v"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// notes returns the section of a version. If a prerelease or a commit after a release has none,
// it returns the unreleased section.
func notes(log, version string) (string, error) {
	if text, ok := section(log, version); ok && text != "" {
		return text, nil
	}
	if text, ok := section(log, unreleased); ok && text != "" && strings.ContainsAny(version, "-+") {
		return text, nil
	}
	return "", fmt.Errorf("%s says nothing of %s: make cut VERSION=v%s", changelog, version, version)
}

// cut gives the unreleased section the version and the date.
func (r *repository) cut(version string, now time.Time) error {
	if !validVersion.MatchString(version) {
		return fmt.Errorf("-version %q: write v1.2.3", version)
	}
	log, err := os.ReadFile(r.path(changelog))
	if err != nil {
		return err
	}
	changed, err := cutLog(string(log), strings.TrimPrefix(version, "v"), now)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(changelog), []byte(changed), 0o644)
}

func cutLog(log, version string, now time.Time) (string, error) {
	text, ok := section(log, unreleased)
	if !ok || text == "" {
		return "", errors.New("nothing is unreleased")
	}
	if _, ok := section(log, version); ok {
		return "", fmt.Errorf("%s is in the changelog already", version)
	}
	heading := "## " + unreleased + "\n"
	return strings.Replace(log, heading, heading+"\n## "+version+" — "+now.UTC().Format(time.DateOnly)+"\n", 1), nil
}
