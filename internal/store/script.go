package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua lua/lib/*.lua
var luaFiles embed.FS

// script is a Lua script made of files of lua/. It is put together when it is first used:
// a process uses a few of them, and a worker process that is replaced often would spend
// more time on all than on its jobs.
type script struct {
	name  string // as errors have it
	files []string
	sha   func() string // its name in Redis; the source is not needed where that is known
}

// newScript returns the script that consists of some files of lua/, one after the other,
// named without their extension: the fragments of lua/lib that the script uses, in the
// order in which they need each other, and then the script itself.
func newScript(name string, files ...string) *script {
	sc := &script{name: name, files: files}
	sc.sha = sync.OnceValue(func() string {
		sum := sha1.New() //nolint:gosec // as above
		sc.write(sum)
		return hex.EncodeToString(sum.Sum(nil))
	})
	return sc
}

func (sc *script) source() string {
	var source strings.Builder
	sc.write(&source)
	return source.String()
}

func (sc *script) write(to io.Writer) {
	part := make([]byte, 4<<10) // a process that has just begun has no other memory yet
	for _, file := range sc.files {
		f, err := luaFiles.Open("lua/" + file + ".lua")
		for n := 0; err == nil; {
			if n, err = f.Read(part); n > 0 {
				_, _ = to.Write(part[:n]) // into memory
			}
		}
		if !errors.Is(err, io.EOF) {
			panic(err) // embedded: missing only if the build is broken
		}
		_, _ = to.Write([]byte{'\n'})
	}
}

var (
	exchangeScript   = newScript("exchange", "lib/base", "lib/payload", "lib/rights", "exchange_fast", "lib/records", "lib/blocked_queues", "lib/unique_stub", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "exchange_slow")
	exchangeUnique   = newScript("exchange", "lib/base", "lib/payload", "lib/rights", "exchange_fast", "lib/records", "lib/blocked_queues", "lib/unique", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "exchange_slow")
	pollScript       = newScript("poll", "lib/base", "lib/records", "lib/blocked_queues", "lib/suspects", "lib/pause", "poll")
	registerScript   = newScript("register", "lib/base", "lib/records", "lib/grace", "lib/relock", "register")
	unregisterScript = newScript("unregister", "lib/base", "lib/forget_process", "unregister")
	beatScript       = newScript("beat", "lib/base", "lib/records", "lib/grace", "lib/relock", "beat")
	enrollScript     = newScript("restore_workers", "lib/base", "restore_workers")
	mirrorScript     = newScript("mirror", "lib/base", "mirror")
	orphansScript    = newScript("orphans", "lib/base", "lib/records", "lib/blocked_queues", "lib/grace", "lib/deaths", "orphans")
	putMasterScript  = newScript("put_master", "put_master")
	dropMasterScript = newScript("drop_master", "drop_master")
	fenceScript      = newScript("fence", "lib/base", "lib/grace", "fence")
	recoverScript    = newScript("recover", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/unique", "lib/forget_process", "lib/parked", "lib/deaths", "recover")
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
		reply, err = s.write.EvalSha(ctx, sc.sha(), keys, args...).Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// Not pipelined and not Script.Run: the answer proves that the script
			// did not run, so sending it whole cannot run it twice.
			reply, err = s.write.Eval(ctx, sc.source(), keys, args...).Result()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", sc.name, err)
	}
	return reply, nil
}
