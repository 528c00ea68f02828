package control

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dir returns a directory whose path is short enough for a socket.
func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "ctl")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func listen(t *testing.T, path string, pid int) *Server {
	t.Helper()
	s, err := Listen(path, func(_ context.Context, r Request) Reply {
		return Reply{OK: true, PID: pid, Text: "did " + r.Do}
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestAsk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(dir(t), "control.sock")
	_, err := Ask(path, Reload, time.Second)
	require.ErrorIs(t, err, ErrNoDaemon)

	s := listen(t, path, 1)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	reply, err := Ask(path, Reload, 0)
	require.NoError(t, err)
	require.Equal(t, Reply{V: Version, OK: true, PID: 1, Text: "did reload"}, reply)

	require.True(t, Taken(path))
	// The second server replaces the first; closing the first does not remove its socket.
	next := listen(t, path, 2)
	require.False(t, s.Current())
	s.Close()
	reply, err = Ask(path, Status, 0)
	require.NoError(t, err)
	require.Equal(t, 2, reply.PID)
	next.Close()
	require.False(t, Taken(path))
	require.NoFileExists(t, path)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAnswerTakesTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(dir(t), "control.sock")
	s, err := Listen(path, func(ctx context.Context, _ Request) Reply {
		<-ctx.Done()
		return Reply{}
	})
	require.NoError(t, err)
	_, err = Ask(path, Reload, time.Millisecond)
	require.ErrorIs(t, err, ErrNoAnswer)
	s.Close() // does not wait for the answer
}

func TestWhatIsNoSocketStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(dir(t), "resqued.yaml")
	require.NoError(t, os.WriteFile(path, []byte("queues: [a]\n"), 0o600))
	_, err := Listen(path, nil)
	require.ErrorContains(t, err, path+": there is something else than a socket")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "queues: [a]\n", string(text))
}

// A socket can be renamed to a path that is too long to connect to.
func TestLongPath(t *testing.T) {
	t.Parallel()
	in := dir(t)
	_, err := Listen(filepath.Join(in, strings.Repeat("x", 108-len(in))), nil)
	require.ErrorContains(t, err, "and 107 are the most")
	entries, err := os.ReadDir(in)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	path := filepath.Join(dir(t), "control.sock")
	listen(t, path, 1)
	for line, reason := range map[string]string{
		"{\"v\":2,\"do\":\"reload\"}\n":        "version 2",
		"reload\n":                             "cannot be read",
		string(make([]byte, maxLine+1)) + "\n": "cannot be read",
	} {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(line))
		var reply Reply
		require.NoError(t, receive(conn.(*net.UnixConn), 0, &reply))
		require.False(t, reply.OK)
		require.Contains(t, reply.Text, reason)
		require.NoError(t, conn.Close())
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()

	t.Run("that of a service", func(t *testing.T) {
		t.Parallel()
		p := Places{Service: "/run/a:/run/b", Runtime: "/x", Temporary: "/y"}
		path, err := p.Own(1)
		require.NoError(t, err)
		require.Equal(t, "/run/a/control.sock", path)
	})

	t.Run("that of a user", func(t *testing.T) {
		t.Parallel()
		d := dir(t)
		p := Places{Temporary: d, System: d}
		require.Empty(t, p.Find(0))
		path, err := p.Own(11)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(d, "resqued-"+strconv.Itoa(os.Getuid()), "11.sock"), path)
		listen(t, path, 11)
		// A dead process's socket is removed when the next daemon comes.
		dead := filepath.Join(filepath.Dir(path), "12.sock")
		socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
		require.NoError(t, err)
		socket.SetUnlinkOnClose(false)
		require.NoError(t, socket.Close())
		other, err := p.Own(13)
		require.NoError(t, err)
		require.NoFileExists(t, dead)
		listen(t, other, 13)
		// Services, too.
		require.NoError(t, os.Mkdir(filepath.Join(d, "resqued-mail"), 0o700))
		listen(t, filepath.Join(d, "resqued-mail", "control.sock"), 14)
		pids := []int{}
		for _, f := range p.Find(0) {
			require.NoError(t, f.Err)
			require.Equal(t, "did status", f.Status)
			pids = append(pids, f.PID)
		}
		require.ElementsMatch(t, []int{11, 13, 14}, pids)
	})

	t.Run("that of the configuration, and of a service that has none of its own", func(t *testing.T) {
		t.Parallel()
		d := dir(t)
		p := Places{Configured: filepath.Join(d, "c.sock"), Service: filepath.Join(d, "resqued-mail"), Temporary: d, System: d}
		pids := func(pid int) (found []int) {
			for _, f := range p.Find(pid) {
				found = append(found, f.PID)
			}
			return found
		}
		require.NoError(t, os.Mkdir(filepath.Join(d, "resqued"), 0o700))
		listen(t, filepath.Join(d, "resqued", "control.sock"), 21)
		require.Equal(t, []int{21}, pids(0), "an agent of another service may ask")
		require.NoError(t, os.Mkdir(p.Service, 0o700))
		listen(t, filepath.Join(p.Service, "control.sock"), 22)
		require.Equal(t, []int{22}, pids(0))
		listen(t, p.Configured, 23)
		require.Equal(t, []int{23}, pids(0))
		require.Equal(t, []int{23, 22, 21}, pids(21))
	})

	t.Run("a directory that others can write to is not trusted", func(t *testing.T) {
		t.Parallel()
		d := dir(t)
		p := Places{Runtime: d}
		require.NoError(t, os.Mkdir(filepath.Join(d, "resqued"), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(d, "resqued"), 0o777))
		_, err := p.Own(1)
		require.ErrorContains(t, err, "mode 0700")
		require.NoError(t, os.Remove(filepath.Join(d, "resqued")))
		require.NoError(t, os.Symlink("/tmp", filepath.Join(d, "resqued")))
		_, err = p.Own(1)
		require.ErrorContains(t, err, "must be a directory")
	})
}
