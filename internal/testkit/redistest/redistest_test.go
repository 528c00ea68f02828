package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// orphanTest makes this test binary start a server and wait to be killed.
const orphanTest = "REDISTEST_ORPHAN"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	t.Parallel()

	t.Run("both kinds answer at their URL", func(t *testing.T) {
		Both(t, func(t *testing.T, s *Server) {
			o, err := redis.ParseURL(s.URL())
			require.NoError(t, err)
			c := redis.NewClient(o)
			defer func() { _ = c.Close() }()
			require.NoError(t, c.Ping(t.Context()).Err())
			key := Namespace(t) + ":k"
			require.NoError(t, s.Client(t).Set(t.Context(), key, "v", 0).Err())
			require.Equal(t, "v", c.Get(t.Context(), key).Val())
		})
	})

	t.Run("tests share one server and not one namespace", func(t *testing.T) {
		t.Parallel()
		require.Same(t, Shared(t), Shared(t))
		require.NotEqual(t, Namespace(t), Namespace(t))
	})

	t.Run("a killed server comes back at its address", func(t *testing.T) {
		t.Parallel()
		for _, s := range []*Server{Start(t, Options{}), Mini(t)} {
			addr, c := s.Addr, s.Client(t)
			require.NoError(t, c.Ping(t.Context()).Err())
			s.Kill()
			require.Error(t, c.Ping(t.Context()).Err())
			s.Restart()
			require.Equal(t, addr, s.Addr)
			require.NoError(t, c.Ping(t.Context()).Err())
		}
	})

	t.Run("an orderly stop keeps what is on disk", func(t *testing.T) {
		t.Parallel()
		s := Start(t, Options{Args: []string{"--appendonly", "yes"}})
		c := s.Client(t)
		require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
		s.Stop()
		s.Restart()
		require.Equal(t, "v", c.Get(t.Context(), "k").Val())
	})

	t.Run("a hanging server answers when it is resumed", func(t *testing.T) {
		t.Parallel()
		s := Start(t, Options{})
		c := s.Client(t)
		s.Hang()
		answer := make(chan error, 1)
		go func() { answer <- c.Ping(t.Context()).Err() }()
		select {
		case err := <-answer:
			t.Fatalf("a hanging server answered: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		s.Resume()
		require.NoError(t, <-answer)
	})

	t.Run("a port with TLS and a login", func(t *testing.T) {
		t.Parallel()
		s := Start(t, Options{TLS: true, Users: []string{"default off", "alice on >secret ~* &* +@all"}})
		o, err := redis.ParseURL(s.URLAs("alice", "secret"))
		require.NoError(t, err)
		o.TLSConfig.RootCAs = s.TLSConfig.RootCAs
		c := redis.NewClient(o)
		defer func() { _ = c.Close() }()
		require.NoError(t, c.Ping(t.Context()).Err())

		o.Password = "wrong"
		stranger := redis.NewClient(o)
		defer func() { _ = stranger.Close() }()
		require.ErrorContains(t, stranger.Ping(t.Context()).Err(), "WRONGPASS")
	})
}

// TestNoServerOutlivesTheTestBinary checks that the server of a killed test binary dies with it
// and leaves no files.
func TestNoServerOutlivesTheTestBinary(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	if os.Getenv(orphanTest) != "" {
		s := Start(t, Options{})
		_, _ = os.Stdout.WriteString(s.Socket + "\n")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), orphanTest+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	socket := line[:len(line)-1]
	require.FileExists(t, socket)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		_, err := os.Stat(socket)
		return os.IsNotExist(err)
	}, 30*time.Second, 10*time.Millisecond)
}

// TestAPortIsKept checks that no other server gets the port of a server that is down, in this
// program or another.
func TestAPortIsKept(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.Kill()
	_, number, err := net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	_, err = net.Listen("unix", "@redistest-"+number)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestStepClock(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Clock: true})
	c := s.Client(t)
	now := func() time.Time { return c.Time(t.Context()).Val() }
	require.WithinDuration(t, time.Now(), now(), time.Minute)
	require.NoError(t, c.Set(t.Context(), "k", "v", time.Minute).Err())
	s.StepClock(t, time.Hour)
	require.WithinDuration(t, time.Now().Add(time.Hour), now(), time.Minute)
	require.Zero(t, c.Exists(t.Context(), "k").Val())
	s.StepClock(t, -2*time.Hour)
	require.WithinDuration(t, time.Now().Add(-time.Hour), now(), time.Minute)
}
