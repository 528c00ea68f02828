package rdb_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
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
		ours, err := rdb.Blocking(conn)
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
			require.True(t, rdb.Unreachable(err))
			_, err = ours.Write(buffer) // there is no reader
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
}
