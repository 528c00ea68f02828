package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/bench/job"
)

const fleetMethod = `Nothing happens. Each master has a host name of its own and one worker process of four threads,
with the defaults. Figures are those of the server; its processor time depends on the machine and on what else runs on it, counts do not.
`

// noFleet returns why masters cannot have their own host names, or "".
func noFleet(ctx context.Context) string {
	if err := exec.CommandContext(ctx, "unshare", "--uts", "true").Run(); err != nil {
		return fmt.Sprintf("masters with host names of their own need root, and unshare: %v", err)
	}
	return ""
}

func (m *measurement) fleet(ctx context.Context) error {
	window := 10 * time.Second
	if m.b.o.short {
		window = 5 * time.Second
	}
	names := make([]any, m.s.Queues)
	for i, name := range m.s.queueNames() {
		names[i] = name
	}
	if err := m.t.redis.client.SAdd(ctx, resqueNamespace+":queues", names...).Err(); err != nil {
		return err
	}
	for i := range m.s.Masters {
		if err := m.launchMaster(i); err != nil {
			return err
		}
	}
	masters := func() int { return int(m.t.redis.client.ZCard(ctx, resqueNamespace+":resqued:procs").Val()) }
	if err := m.until(ctx, "until all masters are there", 5*time.Minute, func() bool { return masters() == m.s.Masters }); err != nil {
		return err
	}
	pause(15 * time.Second) // masters poll at each interval for a while, and learn their number
	return m.quiet(ctx, window)
}

func (m *measurement) launchMaster(i int) error {
	dir := filepath.Join(m.t.dir, strconv.Itoa(i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf(resquedConfig, m.sp.Redis, resqueNamespace, 1, 4, 1000, `"*"`) + "control_socket: off\n"
	file := filepath.Join(dir, "resqued.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("unshare", "--uts", "sh", "-c", fmt.Sprintf(`hostname bench-%d && exec "$0" "$@"`, i), m.t.daemon, "work", "--config", file)
	cmd.Env, cmd.Dir = childEnv(job.Env, m.sp.job()), m.t.dir
	c, err := start(cmd)
	if err == nil {
		m.children = append(m.children, c)
	}
	return err
}

func (r *report) fleets(b *strings.Builder) {
	b.WriteString("## Fleets that do nothing\n\n" + fleetMethod + "\n")
	b.WriteString(row("fleet", "commands/s", "per master", "scripts/s per master", "server CPU ms/s", "per master", "µs/command", "connections per master") +
		row("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:"))
	for i := range r.scenarios {
		s := &r.scenarios[i]
		if s.Kind != kindFleet || len(r.of(s.Name, "resqued")) == 0 {
			continue
		}
		of := func(figure func(*result) float64) spread { return r.spread(s.Name, "resqued", figure) }
		masters := float64(s.Masters)
		b.WriteString(row(s.Title, of(func(m *result) float64 { return m.Commands }).String(),
			human(of(func(m *result) float64 { return m.Commands / masters }).Median),
			human(of(func(m *result) float64 { return (m.Calls["evalsha"].Calls + m.Calls["eval"].Calls) / masters }).Median),
			of(serverCPU).String(), human(of(func(m *result) float64 { return m.ServerCPU / masters }).Median),
			human(of(func(m *result) float64 { return 1000 * m.ServerCPU / m.Commands }).Median),
			human(of(func(m *result) float64 { return m.Connections / masters }).Median)))
	}
	b.WriteString("\n")
}
