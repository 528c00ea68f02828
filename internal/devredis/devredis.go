// Package devredis provides the Redis for a first run: a private redis-server if one is
// installed, and otherwise a miniredis inside this process. It listens on loopback only, keeps
// everything in memory and ends with this program.
package devredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/zap"
)

// DefaultAddr is the address on which the server listens unless its port is taken.
const DefaultAddr = "127.0.0.1:6399"

// tick is how often to advance the clock of a miniredis, which never moves by itself.
const tick = time.Second

// Options configure the server.
type Options struct {
	// Dir is the directory in which other programs of this user find the server; see the
	// functions Dir and Find. It is created if it does not exist.
	Dir string
	// Addr is tried first, then any free port of 127.0.0.1; empty means DefaultAddr.
	Addr string
	Log  *zap.Logger
	// LookPath finds a program; nil means exec.LookPath.
	LookPath func(name string) (string, error)
}

// Server is a running Redis.
type Server struct {
	// URL is the URL of the server, Addr its host and port.
	URL, Addr string
	// Kind is the program with its version: "redis-server 7.0.15", "valkey-server 8.0.1" or
	// "miniredis".
	Kind string

	stateFile string
	stop      func()
}

// Start starts a Redis and writes its address to o.Dir. Ctx limits only the start; Stop ends
// the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = DefaultAddr
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if err := ownDir(o.Dir); err != nil {
		return nil, err
	}
	s, err := startServer(ctx, o)
	if err != nil && ctx.Err() == nil {
		if !errors.Is(err, exec.ErrNotFound) {
			o.Log.Warn("using miniredis instead of the installed server", zap.Error(err))
		}
		s, err = startMini(o)
	}
	if err != nil {
		return nil, fmt.Errorf("redis for development: %w", err)
	}
	s.URL = "redis://" + s.Addr + "/0"
	s.stateFile = filepath.Join(o.Dir, stateName)
	if err := os.WriteFile(s.stateFile, []byte(s.URL+"\n"), 0o600); err != nil {
		s.stop()
		return nil, fmt.Errorf("redis for development: %w", err)
	}
	return s, nil
}

// Stop ends the server. Its data is lost.
func (s *Server) Stop() {
	// Another server may have written its address there since.
	if text, err := os.ReadFile(s.stateFile); err == nil && strings.TrimSpace(string(text)) == s.URL {
		_ = os.Remove(s.stateFile)
	}
	s.stop()
}

func startServer(ctx context.Context, o Options) (*Server, error) {
	var binary string
	err := exec.ErrNotFound
	for _, name := range []string{"redis-server", "valkey-server"} {
		if binary, err = o.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, exec.ErrNotFound
	}
	dir, err := os.MkdirTemp(o.Dir, "redis")
	if err != nil {
		return nil, err
	}
	addr := o.Addr
	for try := 0; ; try++ {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		p, err := Launch(ctx, ProcessConfig{
			Binary: binary, Dir: dir, Socket: filepath.Join(dir, "redis.sock"),
			Args: []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no"},
		})
		if err == nil {
			kind := filepath.Base(binary) + " " + version(ctx, binary)
			return &Server{Addr: addr, Kind: strings.TrimSpace(kind), stop: sync.OnceFunc(func() {
				p.Kill()
				_ = os.RemoveAll(dir)
			})}, nil
		}
		if !errors.Is(err, ErrPortTaken) || try == 10 {
			_ = os.RemoveAll(dir)
			return nil, err
		}
		if addr, err = freeAddr(); err != nil {
			return nil, err
		}
	}
}

func startMini(o Options) (*Server, error) {
	m := miniredis.NewMiniRedis()
	if m.StartAddr(o.Addr) != nil {
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() {
		ticks := time.NewTicker(tick)
		defer ticks.Stop()
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case now := <-ticks.C:
				m.FastForward(now.Sub(last))
				last = now
			}
		}
	})
	return &Server{Addr: m.Addr(), Kind: "miniredis", stop: sync.OnceFunc(func() {
		close(done)
		clock.Wait()
		m.Close()
	})}, nil
}

// version returns the version in the server's output: "Redis server v=7.0.15 sha=…".
func version(ctx context.Context, binary string) string {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	v, _, _ := strings.Cut(rest, " ")
	return v
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), nil
}
