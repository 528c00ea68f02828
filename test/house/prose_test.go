package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// phrase is a pattern of English that reads as translated.
type phrase struct {
	is      *regexp.Regexp
	unless  *regexp.Regexp // of the text that was found
	instead string
}

var phrases = []phrase{
	{regexp.MustCompile(`\b(?:[Tt]here )?(?:is|are|was|were) no [a-z]+`), regexp.MustCompile(`^[Tt]here|no (?:longer|more|less|better|different|doubt|need|other|such)`), "is not a …"},
	{regexp.MustCompile(`\b(?:whoever|somebody|nobody|everybody)\b`), nil, "name the program; no process, anyone"},
	{regexp.MustCompile(`\btells (?:whether|how|what|which|when|where|why)\b`), nil, "says, reports"},
	{regexp.MustCompile(`\bwhat becomes of\b|\bwhat stands\b|\bstands (?:on|in|at|behind|beside|there)\b`), nil, "what happens to; is"},
	{regexp.MustCompile(`\b(?:seldomer|dearer|mends?|mended|needless)\b|\bof its own accord\b|\ball the same\b`), nil, "less often, costlier, fix, by itself, anyway"},
	{regexp.MustCompile(`\b(?:have|has|had|having) (?:it|them|all others|others|the [a-z]+) (?:wait|do|run|go|look|take|come|be)\b`), nil, "make or let, or the verb itself"},
	{regexp.MustCompile(`\b(?:undoes|ends|does|says) that\.$`), nil, "name what"},
	{regexp.MustCompile(`\bthose (?:of|that|which)\b.*\bthose (?:of|that|which)\b`), nil, "repeat the noun"},
	{regexp.MustCompile(`(?:^|[.:;] )(?:Which|What|Whose|How many|Of what|By what|Who)\b[^?]{12,}[^?]$`), nil, "subject first"},
	{regexp.MustCompile(`\b(?:he|his|him)\b`), nil, "it, they, you"},
}

// comment finds the comment of a line, where no parser does.
var comment = map[string]*regexp.Regexp{
	".lua": regexp.MustCompile(`--\s?(.*)$`), ".js": regexp.MustCompile(`//\s?(.*)$`),
	".rb": regexp.MustCompile(`#\s?(.*)$`), ".py": regexp.MustCompile(`#\s?(.*)$`), ".sh": regexp.MustCompile(`#\s?(.*)$`),
	".yaml": regexp.MustCompile(`#\s?(.*)$`), ".yml": regexp.MustCompile(`#\s?(.*)$`), ".service": regexp.MustCompile(`#\s?(.*)$`),
	".md": regexp.MustCompile(`^(.*)$`), ".html": regexp.MustCompile(`^(.*)$`),
}

// TestProse reads comments, pages, and the texts that programs print.
func TestProse(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	require.NoError(t, err)
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		of := comment[filepath.Ext(path)]
		switch {
		case strings.Contains(path, "testdata/"), strings.HasPrefix(path, "internal/web/pages/assets/"):
		case strings.HasSuffix(path, ".go"):
			for _, said := range goTexts(t, path) {
				judge(t, path, said)
			}
		case of != nil:
			for n, line := range strings.Split(read(t, filepath.Join(root, path)), "\n") {
				if m := of.FindStringSubmatch(line); m != nil {
					judge(t, path, text{n + 1, m[1]})
				}
			}
		}
	}
}

func judge(t *testing.T, path string, said text) {
	t.Helper()
	for _, p := range phrases {
		if found := p.is.FindString(said.is); found != "" && (p.unless == nil || !p.unless.MatchString(found)) {
			assert.Fail(t, fmt.Sprintf("%s:%d: %q → %s", path, said.line, found, p.instead))
		}
	}
}

// text is a line of a comment, or a string.
type text struct {
	line int
	is   string
}

// goTexts returns the lines of a Go file's comments and, unless it is a test, its strings.
func goTexts(t *testing.T, path string) (all []text) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, group := range f.Comments {
		for _, c := range group.List {
			for n, line := range strings.Split(strings.TrimPrefix(c.Text, "//"), "\n") {
				all = append(all, text{files.Position(c.Pos()).Line + n, strings.TrimSpace(line)})
			}
		}
	}
	if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "internal/testkit/") {
		return all
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		is, err := strconv.Unquote(literal.Value)
		require.NoError(t, err)
		for n, line := range strings.Split(is, "\n") {
			all = append(all, text{files.Position(literal.Pos()).Line + n, line})
		}
		return true
	})
	return all
}
