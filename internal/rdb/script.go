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

// Lua holds the fragments that scripts are composed of, in lua/lib, and the scripts of
// this package itself, in lua.
//
//go:embed lua/*.lua lua/lib/*.lua
var Lua embed.FS

// Script is a Lua script that consists of several files. It is put together when it is first
// used: a process uses a few scripts, and a worker process that is replaced often would spend
// more time on all of them than on its jobs.
type Script struct {
	Name  string // as errors have it
	files fs.FS
	parts []string
	sha   func() string // its name in Redis; the source is not needed where that is known
}

// NewScript returns the script that consists of some files lua/<part>.lua, one after the
// other: first the fragments that the script uses, in the order in which they need each
// other, and then the script itself. Fragments are named lib/<fragment>, and are those of
// this package unless it has none of that name; everything else is in files.
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

// write writes the text. In lib/rights it puts all commands of the script.
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
		_, _ = to.Write(append(text, '\n')) // into memory
	}
}

// rightsPart is the part that asks for the rights of a script's user.
const rightsPart = "lib/rights"

// commandsIn returns the commands of Redis in a text: what a function has as its first argument in
// capital letters, as in call('LLEN', key). Each process that starts does this, so it uses no regular
// expression.
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

// read returns the text of a part.
func read(files fs.FS, part string) []byte {
	name := "lua/" + part + ".lua"
	if strings.HasPrefix(part, "lib/") {
		if text, err := Lua.ReadFile(name); err == nil {
			return text
		}
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // embedded: missing only if the build is broken
	}
	return text
}

// Eval runs a script once. It is repeated only after answers which prove that
// nothing ran; see Unexecuted. Every other error leaves the outcome unknown, or
// comes from the script itself.
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
			// Not pipelined and not Script.Run: the answer proves that the script
			// did not run, so sending it whole cannot run it twice.
			reply, err = c.Write.Eval(ctx, sc.Source(), keys, args...).Result()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", sc.Name, err)
	}
	return reply, nil
}
