package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestServerInstructions measures what a locked job costs the server, in instructions
// outside of the kernel: a figure that no busy machine changes, so that small gains can
// be told from noise. It is a measurement, made when RESQUED_TEST_INSTRUCTIONS=1 asks for
// it and valgrind is there. The profile of the last batch is kept in the directory that
// RESQUED_TEST_INSTRUCTIONS names instead of 1, for callgrind_annotate.
func TestServerInstructions(t *testing.T) { //nolint:paralleltest // it changes PATH
	dir := os.Getenv("RESQUED_TEST_INSTRUCTIONS")
	if dir == "" {
		t.Skip("a measurement; RESQUED_TEST_INSTRUCTIONS=1 makes it")
	}
	if dir == "1" {
		dir = t.TempDir()
	}
	binary, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	_, err = exec.LookPath("valgrind")
	require.NoError(t, err, "it needs valgrind: apt-get install valgrind")
	profile, wrapper := filepath.Join(dir, "callgrind.out"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(wrapper, "redis-server"), fmt.Appendf(nil,
		"#!/bin/sh\nexec valgrind --quiet --tool=callgrind --instr-atstart=no --callgrind-out-file=%s %s \"$@\"\n", profile, binary), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", wrapper+":"+os.Getenv("PATH"))

	const rounds = 100
	for _, c := range []struct {
		batch, queues int
		last          bool
		limit         int
		title         string
	}{
		{1, 1, false, 0, "one queue"},
		{1, 1, false, 100, "one queue with a cap"},
		{10, 1, false, 0, "one queue"},
		{10, 1, false, 100, "one queue with a cap"},
		{10, 1000, false, 0, "1,000 queues with jobs"},
		{50, 1000, false, 0, "1,000 queues with jobs"},
		{50, 1000, true, 0, "1,000 queues, jobs in the last"},
		{50, 10, true, 0, "10 queues, jobs in the last"},
		{50, 1, false, 0, "one queue"},
	} {
		batch := c.batch
		server := redistest.Start(t, redistest.Options{})
		client := server.Client(t)
		exchange := load(t, server, batch, 2*rounds*batch, c.queues, c.last, c.limit)
		info := regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(client.Info(t.Context(), "server").Val())
		require.NotNil(t, info)
		control := func(what ...string) {
			out, err := exec.CommandContext(t.Context(), "callgrind_control", append(what, info[1])...).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		for range rounds {
			exchange()
		}
		control("-i", "on")
		for range rounds {
			exchange()
		}
		control("-d")
		dump, err := os.ReadFile(profile + ".1")
		require.NoError(t, err)
		total := regexp.MustCompile(`(?m)^(?:totals|summary): (\d+)`).FindSubmatch(dump)
		require.NotNil(t, total, "%.500s", dump)
		n, err := strconv.Atoi(string(total[1]))
		require.NoError(t, err)
		t.Logf("%s, batches of %d: %d instructions for a job", c.title, batch, n/rounds/batch)
	}
}
