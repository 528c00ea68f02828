package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/resqued/resqued/internal/devredis"
)

// aclRule is what docs/redis-keys.md says that a daemon's user needs.
const aclRule = "on >chaos ~" + namespace + ":* -@all +@read +@write +@transaction +@connection +eval +evalsha +time -@dangerous +info"

const namespace = "resque"

// server is the Redis under the daemons. It can be killed and started again.
type server struct {
	dir     string
	socket  string
	addr    string
	process *devredis.Process
	// ctl is a client of the harness, past every proxy.
	ctl *redis.Client
}

func startServer(ctx context.Context, dir string) (*server, error) {
	s := &server{dir: dir, socket: filepath.Join(dir, "r.sock")}
	var err error
	for range 20 {
		// Below the range of outgoing connections, so that it is free after a kill.
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		if err = s.launch(ctx); !errors.Is(err, devredis.ErrPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s.ctl = redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket, ReadTimeout: 20 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return s, nil
}

func (s *server) launch(ctx context.Context) error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("chaos needs redis-server: apt-get install redis-server")
	}
	_, port, _ := net.SplitHostPort(s.addr)
	args := []string{
		"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
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

// restart brings a killed server back and returns when it has loaded its data.
func (s *server) restart(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return within(ctx, 20*time.Second, "redis to load its data", func() bool { return s.ctl.Ping(ctx).Err() == nil })
}

func (s *server) stop() {
	_ = s.ctl.Close()
	s.process.Kill()
}

// url is an address for a daemon behind a proxy.
func url(addr string) string { return "redis://resqued:chaos@" + addr + "/0" }

func key(name string) string { return namespace + ":" + name }

// within waits until ok says so, or returns an error that says what did not come.
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

// pause waits; false: the run is over.
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
