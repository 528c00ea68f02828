package docs_test

import (
	"bytes"
	"context"
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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/test/system/harness"
)

const module = "github.com/resqued/resqued"

// packages are what snippets import, by the name before the dot.
var packages = map[string]string{
	"resqued": module, "client": module + "/client", "fromfile": module + "/client/fromfile", "daemon": module + "/daemon", "locker": module + "/locker",
	"longjob": module + "/longjob", "sqlscan": module + "/longjob/sqlscan", "resquedtest": module + "/resquedtest",
	"pgx": "github.com/jackc/pgx/v5", "pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"context": "context", "errors": "errors", "sql": "database/sql", "fmt": "fmt", "os": "os", "strconv": "strconv", "testing": "testing", "time": "time",
}

var (
	used   = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)
	remark = regexp.MustCompile(`//.*`)
)

// newModule writes a module that uses this one as it is, in a directory of its own.
func newModule(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod := strings.Replace(string(text), "module "+module+"\n", "module "+name+"\n", 1)
	mod += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, here)
	write(t, filepath.Join(dir, "go.mod"), mod)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestGo type-checks all snippets of Go at once.
func TestGo(t *testing.T) {
	t.Parallel()
	dir := newModule(t, "example.com/docs")
	for _, b := range of(t, "go") {
		around, err := os.ReadFile(filepath.Join("testdata/go", b.arg+".txt"))
		if !assert.NoError(t, err, "%s", b) {
			continue
		}
		require.Equal(t, 1, bytes.Count(around, []byte("HERE")), b.arg)
		imports := map[string]bool{}
		whole := strings.Replace(string(around), "HERE", strings.TrimRight(b.text, "\n"), 1)
		for _, name := range used.FindAllStringSubmatch(remark.ReplaceAllString(whole, ""), -1) {
			if path := packages[name[1]]; path != "" {
				imports[path] = true
			}
		}
		var text strings.Builder
		text.WriteString("package snippet\n\n")
		for _, path := range slices.Sorted(maps.Keys(imports)) {
			fmt.Fprintf(&text, "import %q\n", path)
		}
		text.WriteString("\n" + whole)
		write(t, filepath.Join(dir, b.name(), "snippet.go"), text.String())
	}
	vet := exec.Command("go", "vet", "./...")
	vet.Dir, vet.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "the directories are named after the document and the line of the block:\n%s", out)
}

// environment returns a user's environment, with the program on the PATH, in a directory, with a
// namespace of the shared Redis.
func environment(t *testing.T, dir string) []string {
	t.Helper()
	bin := filepath.Dir(harness.Binary(t))
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	return []string{
		"DOCS_ROOT=" + here, "PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "XDG_RUNTIME_DIR=" + dir, "TERM=xterm", "LANG=C.UTF-8",
		"REDIS_URL=" + redistest.Shared(t).URL(), "RESQUE_NAMESPACE=docs-" + filepath.Base(filepath.Dir(dir)) + filepath.Base(dir),
	}
}

// run runs a script of sh in a directory and returns what it prints and its exit code.
func run(t *testing.T, dir string, env []string, script string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", "exec 3>/dev/null\n"+script) // 3 is a command's, for what it reports
	c.Dir, c.Env = dir, env
	c.WaitDelay = time.Second
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	require.NoError(t, err, "%s", script)
	return out.String(), errs.String(), 0
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	each(t, "config", func(t *testing.T, b block) {
		dir := t.TempDir()
		write(t, dir+"/database-url", "postgres://app@db/app\n")
		write(t, dir+"/resqued.yaml", strings.ReplaceAll(b.text, "/etc/resqued/", dir+"/"))
		env := environment(t, dir)
		if !strings.Contains("\n"+b.text, "\nqueues:") {
			env = append(env, "QUEUES=*")
		}
		stdout, stderr, code := run(t, dir, env, "resqued config check --config resqued.yaml -o json")
		require.Zero(t, code, "%s%s", stdout, stderr)
		var report struct {
			Warnings []struct{ Code, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &report))
		for _, w := range report.Warnings {
			assert.Contains(t, []string{"no_program", "no_directory", "no_script", "no_handlers", "exposed", "not_passed"}, w.Code, w.Message)
		}
	})
}

// statements splits a script into what a person would enter one after the other.
func statements(text string) []string {
	var all []string
	var one strings.Builder
	end := ""
	for line := range strings.Lines(text) {
		one.WriteString(line)
		plain := strings.TrimSpace(line)
		switch {
		case end != "":
			if plain != end {
				continue
			}
			end = ""
		case strings.Contains(line, "<<'"):
			_, rest, _ := strings.Cut(line, "<<'")
			end, _, _ = strings.Cut(rest, "'")
			continue
		case strings.HasSuffix(plain, "\\"):
			continue
		}
		if plain != "" && !strings.HasPrefix(plain, "#") {
			all = append(all, one.String())
		}
		one.Reset()
	}
	return all
}

// lasting returns the line that a command prints when it is ready, if it runs until told to
// stop.
func lasting(statement string) string {
	switch {
	case strings.Contains(statement, "--watch"):
		return "UUID…CLASS…"
	case strings.Contains(statement, "resqued work"):
		return "…ready…queues…"
	}
	return ""
}

func TestCommands(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	each(t, "commands", func(t *testing.T, b block) {
		dir := t.TempDir()
		env := environment(t, dir)
		if b.arg != "" {
			files, err := txtar.ParseFile(filepath.Join("testdata/sh", b.arg+".txtar"))
			require.NoError(t, err)
			for _, f := range files.Files {
				write(t, filepath.Join(dir, f.Name), string(f.Data))
				require.NoError(t, os.Chmod(filepath.Join(dir, f.Name), 0o700))
			}
			if setup := strings.TrimSpace(string(files.Comment)); setup != "" {
				stdout, stderr, code := run(t, dir, env, setup)
				require.Zero(t, code, "%s%s%s", setup, stdout, stderr)
			}
		}
		for _, one := range statements(b.text) {
			if strings.HasPrefix(one, "cd ") || strings.HasPrefix(one, "export ") {
				continue // of other machines
			}
			if ready := lasting(one); ready != "" {
				line, _, _ := strings.Cut(strings.TrimSpace(one), "  #")
				s := open(t, dir, env, "exec "+strings.TrimSuffix(strings.TrimSpace(line), "&"))
				s.await(t, ready)
				t.Cleanup(func() { s.interrupt(t) })
				continue
			}
			stdout, stderr, code := run(t, dir, env, one)
			// No such job is fine, wrong usage is not.
			assert.Contains(t, []int{0, 3, 4}, code, "%s%s%s", one, stdout, stderr)
			assert.NotContains(t, stderr, "not found\n", one)
		}
	})
}

var (
	blanks  = regexp.MustCompile(`\s+`)
	figures = regexp.MustCompile(`\d+(\\\.\d+)*`)
)

// fits returns the pattern of a line of output in which numbers and blanks may differ. "…"
// matches anything.
func fits(line string) *regexp.Regexp {
	text := regexp.QuoteMeta(strings.TrimSpace(line))
	text = figures.ReplaceAllString(text, `[\d.]+`)
	text = strings.ReplaceAll(text, `[\d.]+ms`, `[\d.]+m?s`) // a second or more, on a slow machine
	text = blanks.ReplaceAllString(text, `\s+`)
	return regexp.MustCompile(`(?m)^\s*` + strings.ReplaceAll(text, "…", ".*") + `\s*$`)
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	each(t, "output", func(t *testing.T, b block) {
		dir := t.TempDir()
		write(t, dir+"/resqued.yaml", "handlers: {Mail: {command: [\"true\"], queue: mail}}\n")
		stdout, stderr, code := run(t, dir, environment(t, dir), b.arg)
		require.Zero(t, code, "%s%s", stdout, stderr)
		for line := range strings.Lines(b.text) {
			assert.Regexp(t, fits(line), stdout)
		}
	})
}

// TestMake checks that the targets of make and the packages and tests given to go exist.
func TestMake(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	each(t, "make", func(t *testing.T, b block) {
		for _, one := range statements(b.text) {
			line, _, _ := strings.Cut(strings.TrimSpace(one), "  #")
			in := root
			if rest, ok := strings.CutPrefix(line, "cd "); ok {
				var dir string
				dir, line, _ = strings.Cut(rest, " && ")
				in = filepath.Join(root, dir)
			}
			words := strings.Fields(line)
			var c *exec.Cmd
			switch {
			case words[0] == "make":
				c = exec.Command("sh", "-c", "make -n "+strings.TrimPrefix(line, "make"))
			case words[0] == "go" && (words[1] == "run" || words[1] == "test"):
				c = exec.Command("go", "list", words[2])
			default:
				t.Fatalf("%s: neither make nor go: %s", b, line)
			}
			c.Dir = in
			out, err := c.CombinedOutput()
			assert.NoError(t, err, "%s: %s", line, out)
		}
	})
}

func TestJSON(t *testing.T) {
	t.Parallel()
	each(t, "json", func(t *testing.T, b block) {
		for d := json.NewDecoder(strings.NewReader(b.text)); ; {
			var v map[string]any
			err := d.Decode(&v)
			if errors.Is(err, io.EOF) {
				return
			}
			require.NoError(t, err)
		}
	})
}

func TestPython(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	each(t, "python", func(t *testing.T, b block) {
		dir := t.TempDir()
		write(t, dir+"/snippet.py", b.text)
		args := []string{"-m", "py_compile", "snippet.py"}
		if b.arg == "run" {
			args = []string{"snippet.py"}
		}
		c := exec.Command(python, args...)
		c.Dir, c.Stdin = dir, strings.NewReader(`{"class":"Mail","args":[42,"hello"]}`)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

func TestUnits(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	unit, err := os.ReadFile(filepath.Join(root, "deploy/systemd/resqued.service"))
	require.NoError(t, err)
	each(t, "unit", func(t *testing.T, b block) {
		dir := t.TempDir()
		for path, text := range map[string]string{"/resqued.service": string(unit), "/resqued.service.d/shown.conf": b.text} {
			write(t, dir+path, strings.ReplaceAll(text, "/usr/local/bin/resqued", "/bin/true"))
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", dir+"/resqued.service").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out)) // it exits 0 for misspelt keys
	})
}

func TestSQL(t *testing.T) {
	t.Parallel()
	testlevel.Long(t)
	found := of(t, "sql")
	for _, b := range found {
		setup, err := os.ReadFile(filepath.Join("testdata/sql", b.arg+".sql"))
		require.NoError(t, err, "%s", b)
		conn, err := pgx.Connect(t.Context(), database.URL(pgtest.Superuser))
		require.NoError(t, err)
		schema := pgx.Identifier{b.name()}.Sanitize()
		_, err = conn.Exec(t.Context(), "CREATE SCHEMA "+schema+"; SET search_path TO "+schema+"; "+string(setup))
		require.NoError(t, err, "%s", b)
		if strings.Contains(b.text, "$1") {
			_, err = conn.Prepare(t.Context(), "", b.text)
		} else {
			_, err = conn.Exec(t.Context(), b.text)
		}
		assert.NoError(t, err, "%s", b)
		require.NoError(t, conn.Close(t.Context()))
	}
}
