package rdb

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Lua holds the fragments of scripts in lua/lib, and this package's own scripts in lua.
//
//go:embed lua/*.lua lua/lib/*.lua
var Lua embed.FS

// Script is a Lua script composed of several files. It is composed at its first use: a process uses few
// scripts, and a short-lived worker process would spend more time on all of them than on its jobs.
type Script struct {
	Name  string // for errors
	files fs.FS
	parts []string
	sha   func() string // its name in Redis, for which the source need not be kept
}

// NewScript returns the script composed of files lua/<part>.lua, in this order: the fragments, each after
// those it needs, then the script itself. A part lib/<fragment> comes from this package if it exists
// here; all others come from files.
func NewScript(files fs.FS, name string, parts ...string) *Script {
	sc := &Script{Name: name, files: files, parts: parts}
	sc.sha = sync.OnceValue(func() string {
		sum := sha1.New() //nolint:gosec // as above
		sc.write(sum)
		return hex.EncodeToString(sum.Sum(nil))
	})
	return sc
}

// Source returns the text of the script.
func (sc *Script) Source() string {
	var source strings.Builder
	sc.write(&source)
	return source.String()
}

// write writes the text, with the script's commands inserted into lib/rights.
func (sc *Script) write(to io.Writer) {
	var commands []string
	texts := make([][]byte, len(sc.parts))
	for i, part := range sc.parts {
		texts[i] = read(sc.files, part)
		if slices.Contains(sc.parts, rightsPart) {
			commands = append(commands, commandsIn(texts[i])...)
		}
	}
	slices.Sort(commands)
	list := "'" + strings.Join(slices.Compact(commands), "', '") + "'"
	for i, text := range texts {
		if sc.parts[i] == rightsPart {
			text = bytes.Replace(text, []byte("'COMMANDS'"), []byte(list), 1)
		}
		_, _ = to.Write(append(text, '\n')) // in memory
	}
}

const rightsPart = "lib/rights"

// commandsIn returns the Redis commands in a text: each first argument in capitals, as in
// call('LLEN', key). Each starting process calls it, so it avoids regular expressions.
func commandsIn(text []byte) (names []string) {
	for {
		_, rest, more := bytes.Cut(text, []byte("('"))
		if !more {
			return names
		}
		name, _, _ := bytes.Cut(rest, []byte("'"))
		if len(name) > 0 && len(bytes.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == 0 {
			names = append(names, string(name))
		}
		text = rest
	}
}

func read(files fs.FS, part string) []byte {
	name := "lua/" + part + ".lua"
	if strings.HasPrefix(part, "lib/") {
		if text, err := Lua.ReadFile(name); err == nil {
			return text
		}
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // embedded: only missing if the build is broken
	}
	return text
}

// Eval runs a script. It repeats it only after answers that prove that nothing ran; see Unexecuted. Any
// other error leaves the outcome unknown, or is the script's own.
func (c *Client) Eval(ctx context.Context, sc *Script, key string, args []any) (any, error) {
	keys := []string{key}
	if c.rehearsed != nil {
		c.rehearsed.add(ctx, sc, keys, args)
		return nil, errRehearsed
	}
	var reply any
	err := c.Once(ctx, func() error {
		var err error
		reply, err = c.Write.EvalSha(ctx, sc.sha(), keys, args...).Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// Not pipelined, and not Script.Run: NOSCRIPT proves that it did not run, so sending the source is safe.
			reply, err = c.Write.Eval(ctx, sc.Source(), keys, args...).Result()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", sc.Name, err)
	}
	return reply, nil
}
