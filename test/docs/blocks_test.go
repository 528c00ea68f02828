// Package docs_test runs what the documents show: each fenced block of README.md, of docs and of
// some others. A comment before a block, which readers do not see, says how:
//
//	<!-- run: KIND ARGUMENT -->
//	<!-- not run: REASON -->
//
// A block without such a comment fails, so that none is added untested. The kinds:
//
//	go NAME        is type-checked in the place of HERE in testdata/go/NAME.txt, in a module of its own
//	config         is a configuration of which "config check" finds nothing but missing programs
//	commands NAME  is run line by line beside the files of testdata/sh/NAME.txtar (none if there is
//	               no NAME): nothing is refused as wrong usage, and Redis answers. A daemon runs
//	               until the end of the block
//	output COMMAND is what the command prints; numbers may differ
//	make           names targets and packages that exist
//	json           is JSON
//	python         compiles; with the argument "run" it is run with a job on its standard input
//	unit           is a drop-in of the shipped unit that systemd-analyze accepts
//	sql NAME       is accepted by PostgreSQL after testdata/sql/NAME.sql
//	walk STEP      is a step of TestReadme
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/test/system/harness"
)

const root = "../.."

// short are the tests that run with -short: all but those that walk or need PostgreSQL.
var short = []string{
	"TestParse", "TestBlocksAreMarked", "TestGo", "TestConfigurations", "TestCommands", "TestOutputs", "TestMake", "TestJSON",
	"TestPython", "TestUnits", "TestRunbooks", "TestThreatModel",
}

// database is the PostgreSQL of the tests that need one; there is none with -short.
var database *pgtest.Server

func TestMain(m *testing.M) {
	os.Exit(harness.Main(short, nil, func() int {
		var tests interface{ Run() int } = m
		if !testing.Short() {
			tests = pgtest.Beside(m, &database)
		}
		code := tests.Run()
		if err := goleak.Find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

// block is a fenced block of a document.
type block struct {
	doc  string // relative to the root
	line int
	// lang is the word after the fence; "" = none.
	lang, text string
	// kind and arg are from the comment before it; "" without one.
	kind, arg string
	// reason is why it is not run.
	reason string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.doc, b.line) }

func (b block) name() string {
	return fmt.Sprintf("%s_%d", strings.NewReplacer("/", "_", ".md", "", "-", "_").Replace(strings.ToLower(b.doc)), b.line)
}

var (
	fence    = regexp.MustCompile("^ *```(\\w*)$")
	runIt    = regexp.MustCompile(`^ *<!-- run: (\w+) ?(.*?) *-->$`)
	leaveIt  = regexp.MustCompile(`^ *<!-- not run: (.+?) *-->$`)
	allKinds = []string{"go", "config", "commands", "output", "make", "json", "python", "unit", "sql", "walk"}
)

// blocks returns all blocks of the documents.
func blocks(t *testing.T) []block {
	t.Helper()
	paths := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	for _, glob := range []string{"docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		require.NoError(t, err)
		require.NotEmpty(t, found, glob)
		paths = append(paths, found...)
	}
	var all []block
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		doc, err := filepath.Rel(root, path)
		require.NoError(t, err)
		all = append(all, parse(doc, string(text))...)
	}
	return all
}

func parse(doc, text string) []block {
	var all []block
	var in *block
	last := ""
	for n, line := range strings.Split(text, "\n") {
		mark := fence.FindStringSubmatch(line)
		switch {
		case in == nil && mark != nil:
			in = &block{doc: doc, line: n + 1, lang: mark[1]}
			if run := runIt.FindStringSubmatch(last); run != nil {
				in.kind, in.arg = run[1], run[2]
			} else if leave := leaveIt.FindStringSubmatch(last); leave != nil {
				in.reason = leave[1]
			}
		case in != nil && mark != nil:
			all, in = append(all, *in), nil
		case in != nil:
			in.text += line + "\n"
		default:
			last = line
		}
	}
	return all
}

// of returns the blocks of one kind.
func of(t *testing.T, kind string) []block {
	t.Helper()
	found := slices.DeleteFunc(blocks(t), func(b block) bool { return b.kind != kind })
	require.NotEmpty(t, found, "no block is run as %s", kind)
	return found
}

// each runs a test for each block of one kind.
func each(t *testing.T, kind string, test func(t *testing.T, b block)) {
	t.Helper()
	for _, b := range of(t, kind) {
		t.Run(b.String(), func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

func TestBlocksAreMarked(t *testing.T) {
	t.Parallel()
	all := blocks(t)
	require.Greater(t, len(all), 60)
	left := 0
	for _, b := range all {
		switch {
		case b.reason != "":
			left++
		case b.kind == "":
			t.Errorf("%s: a comment is missing before the block, <!-- run: KIND --> or <!-- not run: REASON -->; see test/docs/blocks_test.go", b)
		default:
			assert.Contains(t, allKinds, b.kind, "%s", b)
		}
	}
	assert.Less(t, left, len(all)/4, "too many blocks are not run")
}

func TestParse(t *testing.T) {
	t.Parallel()
	const text = "a\n<!-- run: go x y -->\n```go\nb\n```\n\n```\nc\n```\n<!-- not run: a drawing -->\n```\nd\n```\n"
	require.Equal(t, []block{
		{doc: "x.md", line: 3, lang: "go", text: "b\n", kind: "go", arg: "x y"},
		{doc: "x.md", line: 7, text: "c\n"},
		{doc: "x.md", line: 11, text: "d\n", reason: "a drawing"},
	}, parse("x.md", text))
}
