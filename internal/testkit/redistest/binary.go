package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// binaryEnv names the server for the tests: another version of Redis, or Valkey.
const binaryEnv = "RESQUED_TEST_REDIS_SERVER"

// serverBinary returns the path of the server.
func serverBinary() (string, error) {
	if path := os.Getenv(binaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", binaryEnv, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("these tests need redis-server: apt-get install redis-server (make test does it)")
	}
	return path, nil
}

// Major returns the major version of the server: 5, 6, 7 or 8. Valkey counts as the
// corresponding Redis: its 7 and 8 are Redis's 7.
var Major = sync.OnceValues(func() (int, error) {
	path, err := serverBinary()
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", path, err)
	}
	found := versionPattern.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("%s --version says %q, which has no version", path, out)
	}
	major, err := strconv.Atoi(string(found[2]))
	if string(found[1]) == "Valkey" {
		major = 7
	}
	return major, err
})

// versionPattern matches name and version in "Redis server v=7.0.15 sha=…".
var versionPattern = regexp.MustCompile(`^(\w+) server v=(\d+)\.`)

// NeedsMajor skips the test if the server is older.
func NeedsMajor(tb testing.TB, major int) {
	tb.Helper()
	have, err := Major()
	if err != nil {
		tb.Fatal(err)
	}
	if have < major {
		tb.Skipf("needs Redis %d; the server is Redis %d", major, have)
	}
}

// speaksTLS reports whether the server was built with TLS. Such a server complains about a
// missing certificate and ends.
var speaksTLS = sync.OnceValues(func() (bool, error) {
	path, err := serverBinary()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, "--port", "0", "--tls-port", "1").CombinedOutput()
	return bytes.Contains(out, []byte("tls-cert-file")), ctx.Err()
})

// needs skips the test if the server is too old for the options, or was built without them:
// users and TLS came with Redis 6.
func needs(tb testing.TB, o Options) {
	tb.Helper()
	if len(o.Users) > 0 {
		NeedsMajor(tb, 6)
	}
	if o.TLS {
		tls, err := speaksTLS()
		if err != nil {
			tb.Fatal(err)
		}
		if !tls {
			tb.Skip("needs TLS; the server was built without it")
		}
	}
}

// Knows reports whether the server has a command.
func Knows(tb testing.TB, command string) bool {
	tb.Helper()
	known, err := Shared(tb).Client(tb).Command(tb.Context()).Result()
	if err != nil {
		tb.Fatal(err)
	}
	return known[strings.ToLower(command)] != nil
}

// Without returns the options of a server that lacks a command; an old server lacks it anyway.
func Without(tb testing.TB, command string) Options {
	tb.Helper()
	if !Knows(tb, command) {
		return Options{}
	}
	return Options{Args: []string{"--rename-command", command, ""}}
}

// Needs skips the test where the server does not have a command.
func Needs(tb testing.TB, command string) {
	tb.Helper()
	if !Knows(tb, command) {
		tb.Skipf("needs %s; the server does not have it", command)
	}
}
