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
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/resqued/resqued/internal/devredis"
)

// redisServer is a redis-server for one measurement, whose memory has no traces of earlier
// ones.
type redisServer struct {
	addr    string
	dir     string
	process *devredis.Process
	client  *redis.Client
}

func startRedis(ctx context.Context) (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is missing: apt-get install redis-server (make bench does it)")
	}
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return nil, err
	}
	s := &redisServer{dir: dir}
	for range 20 {
		port := strconv.Itoa(15000 + rand.IntN(15000))
		s.addr = net.JoinHostPort("127.0.0.1", port)
		s.process, err = devredis.Launch(ctx, devredis.ProcessConfig{
			Binary: binary, Dir: dir, Socket: filepath.Join(dir, "redis.sock"),
			Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"},
		})
		if !errors.Is(err, devredis.ErrPortTaken) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.client = newRedis(s.addr, 4)
	return s, nil
}

func newRedis(addr string, pool int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: pool, ReadTimeout: time.Minute, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (s *redisServer) stop() {
	_ = s.client.Close()
	s.process.Kill()
	_ = os.RemoveAll(s.dir)
}

func (s *redisServer) snapshot(ctx context.Context) (counters, error) {
	text, err := s.client.Info(ctx, "everything").Result()
	if err != nil {
		return counters{}, err
	}
	c := counters{cpu: cpu([]int{s.process.PID()}), calls: map[string]call{}}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number := func() float64 { n, _ := strconv.ParseFloat(value, 64); return n }
		switch {
		case name == "total_commands_processed":
			c.commands = number()
		case name == "connected_clients":
			c.connections = number()
		case name == "total_reads_processed":
			c.reads = number()
		case name == "total_net_input_bytes" || name == "total_net_output_bytes":
			c.bytes += number()
		case strings.HasPrefix(name, "cmdstat_"):
			var k call
			if n, _ := fmt.Sscanf(value, "calls=%f,usec=%f", &k.Calls, &k.Micros); n == 2 {
				c.calls[strings.TrimPrefix(name, "cmdstat_")] = k
			}
		}
	}
	return c, nil
}

func (s *redisServer) push(ctx context.Context, key string, left bool, n int, payload func(i int) []byte) error {
	const batch = 1000
	for from := 0; from < n; {
		pipe := s.client.Pipeline()
		for range 10 {
			size, values := 0, make([]any, 0, batch)
			for ; from < n && len(values) < batch && size < 4<<20; from++ {
				p := payload(from)
				size += len(p)
				values = append(values, p)
			}
			if len(values) == 0 {
				break
			}
			if left {
				pipe.LPush(ctx, key, values...)
			} else {
				pipe.RPush(ctx, key, values...)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

type call struct {
	Calls  float64 `json:"calls"`
	Micros float64 `json:"us"`
}

type counters struct {
	cpu                    time.Duration
	commands, reads, bytes float64
	connections            float64
	calls                  map[string]call
}
