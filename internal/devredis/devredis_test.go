package devredis

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func missing(name string) (string, error) {
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// setup returns options with a directory for this test. Its path is short because it holds a
// unix socket.
func setup(t *testing.T, look func(string) (string, error)) Options {
	t.Helper()
	if look == nil {
		testlevel.Integration(t)
	}
	dir, err := os.MkdirTemp("", "devredis")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	addr, err := freeAddr()
	require.NoError(t, err)
	return Options{Dir: filepath.Join(dir, "state"), Addr: addr, LookPath: look, Log: zap.NewNop()}
}

func start(t *testing.T, o Options) (*Server, *redis.Client) {
	t.Helper()
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	options, err := redis.ParseURL(s.URL)
	require.NoError(t, err)
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

func TestStart(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) (string, error){"redis-server": nil, "miniredis": missing}
	for kind, look := range kinds {
		t.Run(kind+" runs where it was asked to, and is found there", func(t *testing.T) {
			t.Parallel()
			o := setup(t, look)
			s, c := start(t, o)
			for range 20 { // another program may have got the port in between
				if s.Addr == o.Addr {
					break
				}
				s.Stop()
				o = setup(t, look)
				s, c = start(t, o)
			}
			require.True(t, strings.HasPrefix(s.Kind, kind), s.Kind)
			require.Equal(t, o.Addr, s.Addr)
			require.NoError(t, c.Ping(t.Context()).Err())

			found, err := Find(o.Dir)
			require.NoError(t, err)
			require.Equal(t, s.URL, found)
			info, err := os.Stat(filepath.Join(o.Dir, stateName))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			s.Stop()
			s.Stop()
			_, err = Find(o.Dir)
			require.ErrorIs(t, err, ErrNotRunning)
			require.Error(t, c.Ping(t.Context()).Err())
			left, err := os.ReadDir(o.Dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})

		t.Run(kind+" takes another port when its own is taken", func(t *testing.T) {
			t.Parallel()
			o := setup(t, look)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = l.Close() }()
			o.Addr = l.Addr().String()
			s, c := start(t, o)
			require.NotEqual(t, o.Addr, s.Addr)
			require.True(t, strings.HasPrefix(s.Addr, "127.0.0.1:"), s.Addr)
			require.NoError(t, c.Ping(t.Context()).Err())
		})
	}

	t.Run("keys of a miniredis expire", func(t *testing.T) {
		t.Parallel()
		_, c := start(t, setup(t, missing))
		require.NoError(t, c.Set(t.Context(), "k", "v", 500*time.Millisecond).Err())
		require.Eventually(t, func() bool {
			return c.Exists(t.Context(), "k").Val() == 0
		}, 30*time.Second, 20*time.Millisecond)
	})

	t.Run("a server that does not start is replaced by a miniredis, with a warning", func(t *testing.T) {
		t.Parallel()
		testlevel.Integration(t)
		o := setup(t, func(string) (string, error) { return "/bin/false", nil })
		core, logs := observer.New(zap.WarnLevel)
		o.Log = zap.New(core)
		s, _ := start(t, o)
		require.Equal(t, "miniredis", s.Kind)
		require.Equal(t, 1, logs.Len())
	})

	t.Run("the first of two servers leaves the address of the second alone", func(t *testing.T) {
		t.Parallel()
		o := setup(t, missing)
		first, _ := start(t, o)
		second, _ := start(t, o)
		first.Stop()
		found, err := Find(o.Dir)
		require.NoError(t, err)
		require.Equal(t, second.URL, found)
	})

	t.Run("a directory that others may write to is refused", func(t *testing.T) {
		t.Parallel()
		o := setup(t, missing)
		require.NoError(t, os.Mkdir(o.Dir, 0o700))
		require.NoError(t, os.Chmod(o.Dir, 0o777))
		_, err := Start(t.Context(), o)
		require.ErrorContains(t, err, "not a directory of this user's alone")
		_, err = Find(o.Dir)
		require.ErrorContains(t, err, "not a directory of this user's alone")
	})

	t.Run("nothing is found where nothing was started", func(t *testing.T) {
		t.Parallel()
		_, err := Find(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, ErrNotRunning)
	})
}
