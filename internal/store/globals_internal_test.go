package store

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		require.Empty(t, strayGlobals(t, sc.name, sc.source()), sc.files)
	}
	require.Equal(t, []string{"sets twice in line 3", "reads pushslice in line 2", "reads twice in line 3"},
		strayGlobals(t, "bad", "local a = 1\nlocal f = function() return pushslice(a) end\ntwice = function() return twice end\nreturn f"))
}

// A fragment that is listed for a script, but defines nothing that the script uses, is only
// text to send and functions to define. Without it nothing is missing.
func TestScriptsHaveNoUnusedFragments(t *testing.T) {
	t.Parallel()
	for _, sc := range scriptsOf(t) {
		for i, file := range sc.files[:len(sc.files)-1] {
			rest := newScript(sc.name, slices.Concat(sc.files[:i], sc.files[i+1:])...)
			require.NotEmpty(t, strayGlobals(t, sc.name, rest.source()), "%s does not use %s", sc.name, file)
		}
	}
}

// scriptsOf returns all scripts as the package puts them together.
func scriptsOf(t *testing.T) []*script {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var scripts []*script
	var used []string
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range regexp.MustCompile(`= newScript\(("[^()]*)\)`).FindAllStringSubmatch(string(text), -1) {
			names := strings.Split(strings.NewReplacer(`"`, "", " ", "", "\n", "", "\t", "").Replace(call[1]), ",")
			scripts = append(scripts, newScript(names[0], names[1:]...))
			for _, name := range names[1:] {
				used = append(used, "lua/"+name+".lua")
			}
		}
	}
	slices.Sort(used)
	files := scriptFiles()
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
