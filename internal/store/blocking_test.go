package store_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

func TestBlockingReads(t *testing.T) {
	t.Parallel()
	// pair is both ends of a connection, the first of them blocking.
	pair := func(t *testing.T, network string) (net.Conn, net.Conn) {
		t.Helper()
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), network, address)
		require.NoError(t, err)
		defer l.Close() //nolint:errcheck // of a test
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), network, l.Addr().String())
		require.NoError(t, err)
		other, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Close() })
		ours, err := store.Blocking(conn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ours.Close() })
		return ours, other
	}

	for _, network := range []string{"tcp", "unix"} {
		t.Run("large texts both ways over "+network, func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, network)
			text := strings.Repeat("0123456789", 1_000_000)
			go func() { _, _ = io.Copy(theirs, theirs) }()
			go func() { _, _ = io.WriteString(ours, text) }()
			got := make([]byte, len(text))
			_, err := io.ReadFull(ours, got)
			require.NoError(t, err)
			require.Equal(t, text, string(got))
		})

		t.Run("deadlines over "+network, func(t *testing.T) {
			t.Parallel()
			ours, _ := pair(t, network)
			buffer := make([]byte, 16<<20)
			require.NoError(t, ours.SetDeadline(time.Now().Add(50*time.Millisecond)))
			_, err := ours.Read(buffer)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.True(t, store.Unreachable(err))
			_, err = ours.Write(buffer) // nobody reads
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})

		t.Run("its end over "+network, func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, network)
			done := make(chan error)
			go func() {
				_, err := ours.Read(make([]byte, 1))
				done <- err
			}()
			require.NoError(t, ours.Close())
			require.Error(t, <-done)
			_, err := ours.Read(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = theirs.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)

			ours, theirs = pair(t, network)
			require.NoError(t, theirs.Close())
			_, err = ours.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		})
	}

	t.Run("a connection that the server has ended is not used again", func(t *testing.T) {
		t.Parallel()
		f := setup(t, redistest.Start(t, redistest.Options{}), func(o *store.Options) { o.BlockingReads = true })
		f.push("q", job("A", "[1]"))
		f.reserve(1, "q")
		require.NoError(t, f.redis.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
		f.reserve(1, "q") // an error would be that of a call whose fate is unknown
	})

	t.Run("a server that does not answer", func(t *testing.T) {
		t.Parallel()
		f := setup(t, redistest.Start(t, redistest.Options{}), func(o *store.Options) { o.BlockingReads = true })
		f.reserve(1, "q")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, f.redis.ClientPause(t.Context(), 3*time.Second).Err())
		blocked := make(chan bool)
		go func() {
			stacks := make([]byte, 1<<20)
			found := false
			for ctx.Err() == nil && !found {
				text := string(stacks[:runtime.Stack(stacks, true)])
				for stack := range strings.SplitSeq(text, "\n\n") {
					found = found || strings.Contains(stack, "blockingConn).Read") && strings.Contains(stack, "Store).Exchange")
				}
			}
			blocked <- found
		}()
		_, err := f.Exchange(ctx, store.ExchangeRequest{Proc: "p1", Wants: f.wants(1), Queues: locked("q")})
		require.True(t, <-blocked, "it waits in a read that blocks")
		require.True(t, store.Unreachable(err), "%v", err)
		require.False(t, store.Unexecuted(err), "%v", err)
	})
}
