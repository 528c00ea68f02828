package rdb

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// globalsOfRedis are the globals that scripts may read: those of Lua and of Redis 5.0.
var globalsOfRedis = []string{
	"ARGV", "KEYS", "assert", "cjson", "error", "ipairs", "loadstring", "math", "next", "pairs", "pcall", "redis", "select",
	"string", "table", "tonumber", "tostring", "type", "unpack",
}

// A misspelt name, or one of a file that the script was not put together with, is a global
// that nothing has set: that shows only when its line runs, which few tests may do.
func TestScriptsHaveNoGlobals(t *testing.T) {
	t.Parallel()
	for _, sc := range scriptsOf(t) {
		require.Empty(t, strayGlobals(t, sc.Name, sc.Source()), sc.parts)
	}
	require.Equal(t, []string{"sets twice in line 3", "reads pushslice in line 2", "reads twice in line 3"},
		strayGlobals(t, "bad", "local a = 1\nlocal f = function() return pushslice(a) end\ntwice = function() return twice end\nreturn f"))
}

// A fragment that is listed for a script, but defines nothing that the script uses, is only
// text to send and functions to define. Without it nothing is missing.
func TestScriptsHaveNoUnusedFragments(t *testing.T) {
	t.Parallel()
	for _, sc := range scriptsOf(t) {
		for i, file := range sc.parts[:len(sc.parts)-1] {
			if !strings.HasPrefix(file, "lib/") || file == rightsPart {
				continue // it does something itself
			}
			rest := NewScript(sc.files, sc.Name, slices.Concat(sc.parts[:i], sc.parts[i+1:])...)
			require.NotEmpty(t, strayGlobals(t, sc.Name, rest.Source()), "%s does not use %s", sc.Name, file)
		}
	}
}

// Each script says what a caller has to know of it, and each fragment what a script has to.
func TestScriptsHaveContracts(t *testing.T) {
	t.Parallel()
	for _, sc := range scriptsOf(t) {
		first := slices.IndexFunc(sc.parts, func(file string) bool { return !strings.HasPrefix(file, "lib/") })
		text, header := headerOf(t, sc.files, sc.parts[first])
		require.True(t, strings.HasPrefix(header, "-- "+sc.parts[first]+" "), "%s does not begin with its name", sc.parts[first])
		for _, part := range []string{"KEYS[1", "ARGV[1", "RETURNS ", "COST "} {
			require.Contains(t, header, "\n-- "+part, sc.parts[first])
		}
		for _, match := range regexp.MustCompile(`\b(KEYS|ARGV)\[([0-9]+)\]`).FindAllStringSubmatch(text, -1) {
			at, err := strconv.Atoi(match[2])
			require.NoError(t, err)
			require.True(t, describes(t, header, match[1], at), "%s does not say what %s is", sc.parts[first], match[0])
		}
	}
	for _, room := range rooms {
		home := os.DirFS(room)
		files, err := fs.Glob(home, "lua/lib/*.lua")
		require.NoError(t, err)
		for _, file := range files {
			testFragment(t, home, file)
		}
	}
}

// testFragment wants a fragment to say what a script has to know of it.
func testFragment(t *testing.T, home fs.FS, file string) {
	t.Helper()
	name := strings.TrimSuffix(strings.TrimPrefix(file, "lua/lib/"), ".lua")
	_, header := headerOf(t, home, "lib/"+name)
	require.True(t, strings.HasPrefix(header, "-- "+name+" "), "%s does not begin with its name", file)
	for _, part := range []string{"DEFINES ", "NEEDS ", "KEYS ", "COST "} {
		require.Contains(t, header, "\n-- "+part, file)
	}
	// With those that it needs nothing is missing, and each of them is needed.
	var needs []string
	for name := range strings.FieldsFuncSeq(regexp.MustCompile(`(?m)^-- NEEDS +(.*)$`).FindStringSubmatch(header)[1], func(c rune) bool { return c == ',' || c == ' ' }) {
		if name != "none" {
			needs = append(needs, "lib/"+name)
		}
	}
	whole := NewScript(home, name, append(slices.Clone(needs), "lib/"+name)...)
	require.Empty(t, strayGlobals(t, name, whole.Source()), "%s says that it needs %s", file, needs)
	for i, need := range needs {
		rest := NewScript(home, name, append(slices.Concat(needs[:i], needs[i+1:]), "lib/"+name)...)
		require.NotEmpty(t, strayGlobals(t, name, rest.Source()), "%s does not need %s", file, need)
	}
}

// headerOf returns a file of lua/, and the comment with which it begins.
func headerOf(t *testing.T, home fs.FS, file string) (text, header string) {
	t.Helper()
	raw := read(home, file)
	return string(raw), regexp.MustCompile(`^(--.*\n)*`).FindString(string(raw))
}

// describes reports whether a header says what is in an element of KEYS or ARGV, as in
// "-- ARGV[3]" or, for all from there on, "-- ARGV[3…]".
func describes(t *testing.T, header, table string, at int) bool {
	t.Helper()
	for _, match := range regexp.MustCompile(`\n-- `+table+`\[([0-9]+)(…?)\] `).FindAllStringSubmatch(header, -1) {
		from, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		if from == at || from < at && match[2] != "" {
			return true
		}
	}
	return false
}

// rooms are the packages that have scripts.
var rooms = []string{".", "../store", "../longstore"}

// scriptsOf returns all scripts as their packages put them together.
func scriptsOf(t *testing.T) []*Script {
	t.Helper()
	var scripts []*Script
	var used, files []string
	for _, room := range rooms {
		lua := os.DirFS(room)
		sources, err := filepath.Glob(room + "/*.go")
		require.NoError(t, err)
		for _, file := range sources {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, call := range regexp.MustCompile(`= (?:rdb\.)?NewScript\(Lua, ("[^()]*)\)`).FindAllStringSubmatch(string(text), -1) {
				names := strings.Split(strings.NewReplacer(`"`, "", " ", "", "\n", "", "\t", "").Replace(call[1]), ",")
				scripts = append(scripts, NewScript(lua, names[0], names[1:]...))
				for _, name := range names[1:] {
					home := room
					if _, err := Lua.Open("lua/" + name + ".lua"); err == nil {
						home = "."
					}
					used = append(used, filepath.Join(home, "lua", name+".lua"))
				}
			}
		}
		for _, pattern := range []string{"lua/lib/*.lua", "lua/*.lua"} {
			some, err := filepath.Glob(filepath.Join(room, pattern))
			require.NoError(t, err)
			files = append(files, some...)
		}
	}
	slices.Sort(used)
	slices.Sort(files)
	require.Equal(t, files, slices.Compact(used), "each file is part of a script")
	return scripts
}

// strayGlobals returns what a script reads or sets of globals that are not Redis' own.
func strayGlobals(t *testing.T, name, source string) []string {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(source), name)
	require.NoError(t, err)
	proto, err := lua.Compile(chunk, name)
	require.NoError(t, err)
	var stray []string
	var walk func(*lua.FunctionProto)
	walk = func(proto *lua.FunctionProto) {
		for i, instruction := range proto.Code {
			op, constant := int(instruction>>26), instruction&0x3ffff
			if op != lua.OP_GETGLOBAL && op != lua.OP_SETGLOBAL {
				continue
			}
			global, at := proto.Constants[constant].String(), proto.DbgSourcePositions[i]
			switch {
			case op == lua.OP_SETGLOBAL:
				stray = append(stray, fmt.Sprintf("sets %s in line %d", global, at))
			case !slices.Contains(globalsOfRedis, global):
				stray = append(stray, fmt.Sprintf("reads %s in line %d", global, at))
			}
		}
		for _, inner := range proto.FunctionPrototypes {
			walk(inner)
		}
	}
	walk(proto)
	return stray
}
