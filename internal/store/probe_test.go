package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Probe(t.Context()))
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
}

func TestProbeOfMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	probe := func(user string, rules ...any) error {
		require.NoError(t, client.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">pw"}, rules...)...).Err())
		s, err := store.Open(store.Options{URL: server.URLAs(user, "pw"), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		return s.Probe(t.Context())
	}
	require.NoError(t, probe("enough", "~resque:*", "+@all", "-acl"))
	require.ErrorContains(t, probe("reader", "~resque:*", "+@all", "-acl", "-hset", "-lpop"), "may not run HSET, LPOP on keys of resque:*; docs/redis-keys.md")
	require.ErrorContains(t, probe("stranger", "~other:*", "+@all", "-acl"), "docs/redis-keys.md")
	require.ErrorContains(t, probe("mute", "~resque:*", "+@all", "-acl", "-eval", "-evalsha"), "docs/redis-keys.md")
	require.ErrorContains(t, probe("single", "~resque:*", "+@all", "-acl", "-exec"), "NOPERM")
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
}

// Every script has its part in a probe.
func TestProbeRunsEveryScript(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var names []string
	for _, file := range sources {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?:loadScript|newScript)\("([a-z]+)"`).FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(file, "_test.go") && match[1] != "lacking" {
				names = append(names, match[1])
			}
		}
	}
	require.Greater(t, len(names), 20)
	slices.Sort(names)
	s, err := store.Open(store.Options{URL: redistest.Shared(t).URL(), Namespace: redistest.Namespace(t)})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.Subset(t, store.Probed(t.Context(), s), slices.Compact(names))
}
