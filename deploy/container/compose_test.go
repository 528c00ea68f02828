// Package container_test checks the files for containers, without an engine: that the image is
// what docs/container.md says, and that the times and sizes fit each other. TestContainer of
// test/system runs the program as the image would.
package container_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/config"
)

// check is a healthcheck.
type check struct {
	Test     []string
	Interval string
	Disable  bool
}

// service is a service of compose, with the fields that are used here.
type service struct {
	Image           string
	Build           map[string]string
	Command         []string
	Restart         string
	ReadOnly        bool `yaml:"read_only"`
	Tmpfs           []string
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	Environment     map[string]string
	Configs         []map[string]string
	Secrets         []map[string]string
	Volumes         []string
	Ports           []string
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
	StopGracePeriod string                                `yaml:"stop_grace_period"`
	MemLimit        string                                `yaml:"mem_limit"`
	PidsLimit       int                                   `yaml:"pids_limit"`
	Healthcheck     *check
}

func TestCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var c struct {
		Name     string
		Common   service `yaml:"x-resqued"`
		Services map[string]service
		Configs  map[string]struct{ File string }
		Secrets  map[string]struct{ File string }
		Volumes  map[string]any
	}
	require.NoError(t, d.Decode(&c))
	r, err := config.Load(config.Options{File: c.Configs["resqued"].File, Environ: []string{"REDIS_URL=" + c.Common.Environment["REDIS_URL"]}, NeedQueues: true})
	require.NoError(t, err)
	require.Empty(t, r.Warnings)

	daemon := c.Services["resqued"]
	grace, err := time.ParseDuration(daemon.StopGracePeriod)
	require.NoError(t, err)
	require.Greater(t, grace, r.DrainTimeout+r.TermTimeout, "a drain needs its time")
	limit, err := config.ParseSize(daemon.MemLimit)
	require.NoError(t, err)
	require.Positive(t, r.AutoRSS(limit))
	require.Greater(t, daemon.PidsLimit, r.Tasks(64, true).Sum(), "also on a machine of 64 processors")
	for name, s := range c.Services {
		if name == "redis" {
			require.Subset(t, s.Command, []string{"--appendonly", "yes", "--maxmemory-policy", "noeviction"})
			continue
		}
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true")
		require.True(t, strings.HasPrefix(s.Tmpfs[0], "/tmp:"), "the control socket needs a place")
		for of := range s.DependsOn {
			require.Contains(t, c.Services, of)
		}
	}
	for _, port := range c.Services["web"].Ports {
		require.True(t, strings.HasPrefix(port, "127.0.0.1:"), port)
	}
}

// instructions returns the instructions of the Dockerfile with their arguments, each on one line.
func instructions(t *testing.T) (all [][2]string) {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAll(text, nil)
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, [2]string{name, rest})
		}
	}
	return all
}

// TestDockerfile: the last stage has nothing but the program, no root, and ends by a drain.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	last := map[string]string{}
	goVersion := ""
	for _, one := range instructions(t) {
		if one[0] == "FROM" {
			last = map[string]string{}
			if v := regexp.MustCompile(`golang:([\d.]+)`).FindStringSubmatch(one[1]); v != nil {
				goVersion = v[1]
			}
		}
		last[one[0]] = one[1]
	}
	require.Equal(t, "scratch", last["FROM"])
	require.Equal(t, "--from=build /rootfs /", last["COPY"])
	require.Equal(t, "65532:65532", last["USER"])
	require.Equal(t, "SIGQUIT", last["STOPSIGNAL"])
	require.Contains(t, last["HEALTHCHECK"], `"resqued", "health", "--alive"`)
	require.Equal(t, `["resqued"]`, last["ENTRYPOINT"])
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "\ngo "+goVersion, "the compiler of the image is that of go.mod")
}
