package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// boots is how often the application of the scenario runner-hup is reloaded.
const boots = 2

// reload measures the longest time in which no job is taken from the queue: first without
// events, then while SIGHUP reloads the application.
func (m *measurement) reload(ctx context.Context) error {
	key, err := m.runners(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fed := make(chan struct{})
	go func() { defer close(fed); m.feed(ctx, key) }()
	defer func() { cancel(); <-fed }()

	calm := 3 * time.Second
	quiet, jobs, err := m.longestGap(ctx, func(since time.Duration) bool { return since > calm })
	if err != nil {
		return err
	}
	longest := 0.0
	for range boots {
		before := m.titled(": template")
		if err := syscall.Kill(m.children[0].pid, syscall.SIGHUP); err != nil {
			return err
		}
		gap, n, err := m.longestGap(ctx, func(time.Duration) bool {
			now := m.titled(": template")
			return len(now) == 1 && now[0] != before[0]
		})
		if err != nil {
			return err
		}
		jobs += n
		longest = math.Max(longest, gap)
	}
	m.r.Jobs, m.r.Gaps = jobs, []float64{quiet, longest}
	return nil
}

// runners starts the daemon and waits until a job was taken from the queue. It returns the
// queue's key.
func (m *measurement) runners(ctx context.Context) (key string, err error) {
	key = resqueNamespace + ":queue:" + m.s.queueOf(0)
	m.sp.Jobs = 500 * m.s.Processes * m.s.Threads
	if err := m.p.fill(ctx, m.t, m.s, m.sp.Jobs); err != nil {
		return "", fmt.Errorf("fill: %w", err)
	}
	if err := m.launch(roleWorker); err != nil {
		return "", err
	}
	return key, m.until(ctx, "before the first job began", wait, func() bool {
		return m.t.redis.client.LLen(ctx, key).Val() < int64(m.sp.Jobs) && len(m.titled("")) > m.s.Processes*m.s.Threads
	})
}

func (m *measurement) feed(ctx context.Context, key string) {
	payloads := make([]any, 1000)
	for i := range payloads {
		payloads[i] = resquePayload(int64(i), m.s.text())
	}
	for ; ctx.Err() == nil; pause(lookEvery) {
		if m.t.redis.client.LLen(ctx, key).Val() < 5000 {
			m.t.redis.client.RPush(ctx, key, payloads...)
		}
	}
}

// longestGap polls the count of processed jobs until over returns true for the elapsed time. It
// returns the longest time in milliseconds without a processed job, and the number of processed
// jobs.
func (m *measurement) longestGap(ctx context.Context, over func(time.Duration) bool) (gap float64, n int, err error) {
	count := func() int { v, _ := m.t.redis.client.Get(ctx, resqueNamespace+":stat:processed").Int(); return v }
	first := count()
	last, began, seen := first, time.Now(), time.Now()
	looked := began
	gap = float64(lookEvery) / 1e6 // shorter gaps are not seen
	err = m.until(ctx, "while the application was loaded", wait, func() bool {
		now := time.Now()
		if v := count(); v != last {
			last, seen = v, now
		} else {
			gap = math.Max(gap, float64(now.Sub(seen))/1e6)
		}
		if now.Sub(looked) < 200*time.Millisecond {
			return false // a scan of all processes takes a while
		}
		looked = now
		return over(now.Sub(began))
	})
	if failed := m.t.redis.client.LLen(ctx, resqueNamespace+":failed").Val(); err == nil && failed > 0 {
		err = fmt.Errorf("%d jobs failed", failed)
	}
	return gap, last - first, err
}

// titled lists the processes of runners and templates whose title contains text.
func (m *measurement) titled(text string) []int {
	var list []int
	for _, pid := range tree(m.children[0].pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if title := string(line); strings.HasPrefix(title, "resqued-runner ") && strings.Contains(title, text) {
			list = append(list, pid)
		}
	}
	return list
}

// proportion measures the memory of the runners with their template, and of one runner as if it
// were alone.
func (m *measurement) proportion(ctx context.Context) error {
	key, err := m.runners(ctx)
	if err != nil {
		return err
	}
	if err := m.until(ctx, "before the last job was taken", wait, func() bool { return m.t.redis.client.LLen(ctx, key).Val() == 0 }); err != nil {
		return err
	}
	list := m.titled("")
	if len(list) != m.s.Processes*m.s.Threads+1 {
		return fmt.Errorf("%d processes of runners in place of %d and a template", len(list), m.s.Processes*m.s.Threads)
	}
	for _, pid := range list {
		pss, rss := rollup(pid, "Pss"), rollup(pid, "Rss")
		if pss == 0 {
			return errors.New("the memory of a runner cannot be read")
		}
		m.r.MemoryAll += pss
		m.r.Memory = math.Max(m.r.Memory, rss)
	}
	m.r.Jobs = m.sp.Jobs
	return nil
}

func rollup(pid int, field string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(line, ":"); ok && name == field {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
