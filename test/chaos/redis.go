package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// aclRule holds the rights that docs/redis-keys.md demands for a daemon's user.
const aclRule = "on >chaos ~" + namespace + ":* -@all +@read +@write +@transaction +@connection +eval +evalsha +time -@dangerous +info"

const namespace = "resque"

// server is the daemons' Redis. It can be killed, restarted and replaced.
type server struct {
	// mu is held while it is replaced.
	mu sync.RWMutex
	// epoch counts how often it may have lost writes.
	epoch int
	instance
}

// instance is one redis-server.
type instance struct {
	dir     string
	socket  string
	addr    string
	process *devredis.Process
	// client is the harness's own, which bypasses every proxy. witness is the same, but never
	// repeats a command.
	client, witness *redis.Client
}

// ctl returns a client of the harness that bypasses every proxy.
func (s *server) ctl() *redis.Client {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.client
}

// address returns the address to which replicas connect.
func (s *server) address() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.addr
}

// witnessed returns the client of the witness.
func (s *server) witnessed() *redis.Client {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.witness
}

// startInstance starts a redis-server with a directory of its own.
func startInstance(ctx context.Context) (*instance, error) {
	// Not in the directory of the evidence: a unix socket's path is limited to 107 bytes.
	dir, err := os.MkdirTemp("", "chaos-redis-")
	if err != nil {
		return nil, err
	}
	s := &instance{dir: dir, socket: filepath.Join(dir, "r.sock")}
	for range 20 {
		// Below the range of outgoing connections, so that it is free after a kill.
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		if err = s.launch(ctx); !errors.Is(err, devredis.ErrPortTaken) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.client = s.dial(3, time.Minute)
	s.witness = s.dial(-1, time.Second)
	return s, nil
}

func (s *instance) dial(retries int, patience time.Duration) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket, ReadTimeout: patience, MaxRetries: retries,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (s *instance) launch(ctx context.Context) error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("chaos needs redis-server: apt-get install redis-server")
	}
	_, port, _ := net.SplitHostPort(s.addr)
	args := []string{
		"--bind", "127.0.0.1", "--port", port, "--save", "", "--repl-diskless-sync-delay", "0", "--appendonly", "yes", "--appendfsync", "everysec",
		"--user", "resqued", "on", ">chaos", "~" + namespace + ":*", "-@all", "+@read", "+@write", "+@transaction",
		"+@connection", "+eval", "+evalsha", "+time", "-@dangerous", "+info",
	}
	if major(binary) >= 7 {
		args = append(args, "--enable-debug-command", "local")
	}
	s.process, err = devredis.Launch(ctx, devredis.ProcessConfig{Binary: binary, Dir: s.dir, Socket: s.socket, Args: args})
	return err
}

var version = regexp.MustCompile(`v=(\d+)\.`)

func major(binary string) int {
	out, _ := exec.Command(binary, "--version").Output()
	if m := version.FindSubmatch(out); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	return 0
}

// restart restarts a killed server and returns when it has loaded its data.
func (s *instance) restart(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return within(ctx, 20*time.Second, "redis to load its data", func() bool { return s.client.Ping(ctx).Err() == nil })
}

// stop ends the server and removes its data.
func (s *instance) stop() {
	_ = s.client.Close()
	_ = s.witness.Close()
	s.process.Kill()
	_ = os.RemoveAll(s.dir)
}

// replace promotes a replica in place of this server, without losing acknowledged writes. It
// calls move when the replica has taken over. The old server becomes a replica and is returned.
func (s *server) replace(ctx context.Context, replica *instance, move func()) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host, port, _ := net.SplitHostPort(replica.addr)
	if err := s.client.Do(ctx, "FAILOVER", "TO", host, port, "TIMEOUT", 5000).Err(); err != nil {
		return nil, err
	}
	err := within(ctx, 10*time.Second, "the replica to take over", func() bool { return replica.says(ctx, "role:master") })
	if err != nil {
		return nil, err
	}
	old := s.instance
	s.instance = *replica
	move()
	return &old, nil
}

// follow makes the server a replica of another one. It returns when the replica has the data
// and the primary knows it.
func (s *instance) follow(ctx context.Context, primary *server) error {
	host, port, _ := net.SplitHostPort(primary.address())
	if err := s.client.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		return err
	}
	return within(ctx, 20*time.Second, "a replica to catch up", func() bool {
		return s.says(ctx, "master_link_status:up") &&
			strings.Contains(primary.ctl().Info(ctx, "replication").Val(), "state=online")
	})
}

// says reports whether INFO replication contains a line.
func (s *instance) says(ctx context.Context, line string) bool {
	return strings.Contains(s.client.Info(ctx, "replication").Val(), line+"\r\n")
}

// url returns the URL for a daemon behind a proxy.
func url(addr string) string { return "redis://resqued:chaos@" + addr + "/0" }

func key(name string) string { return namespace + ":" + name }

// within waits until ok returns true. Its error names what did not happen.
func within(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("waited %s in vain for %s", limit, what)
		}
	}
	return nil
}

// mostPatience bounds a wait on a machine that is always overloaded.
const mostPatience = 3 * time.Minute

// await is within without the time in which the machine was overloaded or stopped, which slows
// down resqued and the load.
func (c *chaos) await(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	since := procfs.BootTime()
	for {
		err := within(ctx, c.left(since, limit), what, ok)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if c.left(since, limit) <= 0 {
			return fmt.Errorf("waited %s in vain for %s", span(procfs.BootTime()-since), what)
		}
	}
}

// left returns how much is left of a limit that began at an instant.
func (c *chaos) left(since, limit time.Duration) time.Duration {
	now := procfs.BootTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(limit+c.history.Held(since, now), mostPatience) - (now - since)
}

// pause waits, and returns false if the run is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
