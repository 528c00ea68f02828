package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one file of lua/, with the shared part in front of most.
type script struct {
	name, source, sha string
}

func loadScript(name string, parts ...string) *script {
	return newScript(name, append(append([]string{"lib", "payload", "records"}, parts...), name)...)
}

// newScript returns the script of some files of lua/, one after the other.
func newScript(name string, files ...string) *script {
	var source strings.Builder
	for _, file := range files {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // embedded: missing only if the build is broken
		}
		source.Write(text)
		source.WriteByte('\n')
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // as above
	return &script{name: name, source: source.String(), sha: hex.EncodeToString(sum[:])}
}

var (
	exchangeScript   = newScript("exchange", "lib", "rights", "payload", "straight", "records", "waits", "plain", "delay", "suspects", "pause", "exchange")
	exchangeUnique   = newScript("exchange", "lib", "rights", "payload", "straight", "records", "waits", "unique", "delay", "suspects", "pause", "exchange")
	pollScript       = loadScript("poll", "rights", "waits", "unique", "suspects", "pause")
	registerScript   = loadScript("register")
	unregisterScript = loadScript("unregister", "forget")
	beatScript       = loadScript("beat")
	mirrorScript     = loadScript("mirror")
	orphansScript    = loadScript("orphans", "waits")
	putMasterScript  = newScript("putmaster", "putmaster")
	dropMasterScript = newScript("dropmaster", "dropmaster")
	fenceScript      = loadScript("fence")
	recoverScript    = loadScript("recover", "rights", "waits", "unique", "forget")
)

// eval runs a script once. It is repeated only after answers which prove that
// nothing ran; see unexecuted. Every other error leaves the outcome unknown, or
// comes from the script itself.
func (s *Store) eval(ctx context.Context, sc *script, key string, args []any) (any, error) {
	keys := []string{key}
	if s.rehearsed != nil {
		s.rehearsed.add(ctx, sc, keys, args)
		return nil, errRehearsed
	}
	var reply any
	err := s.once(ctx, func() error {
		var err error
		reply, err = s.write.EvalSha(ctx, sc.sha, keys, args...).Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// Not pipelined and not Script.Run: the answer proves that the script
			// did not run, so sending it whole cannot run it twice.
			reply, err = s.write.Eval(ctx, sc.source, keys, args...).Result()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", sc.name, err)
	}
	return reply, nil
}
