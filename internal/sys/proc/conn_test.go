//go:build linux

package proc

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pair returns both ends of a control socket of that type.
func pair(t *testing.T, kind int) (ours, theirs *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	ours, err = newConn(fds[0], kind, "ours")
	require.NoError(t, err)
	theirs, err = newConn(fds[1], kind, "theirs")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return ours, theirs
}

func TestConnKinds(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]int{"packets": unix.SOCK_SEQPACKET, "stream": unix.SOCK_STREAM} {
		t.Run(name+" keep their boundaries, until the other side is gone", func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, kind)
			for _, length := range []int{0, 1, 100, maxMessage - 200} {
				require.NoError(t, ours.Send(Message{Type: Beat, Reason: strings.Repeat("x", length)}))
				require.NoError(t, ours.Send(Message{Type: Found}))
				m, err := theirs.Recv()
				require.NoError(t, err)
				require.Len(t, m.Reason, length)
				m, err = theirs.Recv()
				require.NoError(t, err)
				require.Equal(t, Found, m.Type)
			}
			require.NoError(t, ours.Send(Message{Type: Bye}))
			require.NoError(t, ours.Close())
			m, err := theirs.Recv()
			require.NoError(t, err)
			require.Equal(t, Bye, m.Type)
			_, err = theirs.Recv()
			require.ErrorIs(t, err, io.EOF)
		})

		t.Run(name+" that were sent are received behind the end of their sender", func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, kind)
			require.NoError(t, ours.Send(Message{Type: Counted}))
			require.NoError(t, ours.Send(Message{Type: Bye}))
			require.NoError(t, theirs.CloseRead()) // another process may hold ours
			for _, what := range []string{Counted, Bye} {
				m, err := theirs.Recv()
				require.NoError(t, err)
				require.Equal(t, what, m.Type)
			}
			_, err := theirs.Recv()
			require.ErrorIs(t, err, io.EOF)
		})

		t.Run(name+" for which somebody waits end with the sender", func(t *testing.T) {
			t.Parallel()
			_, theirs := pair(t, kind)
			end := make(chan error)
			go func() {
				_, err := theirs.Recv()
				end <- err
			}()
			require.NoError(t, theirs.CloseRead())
			require.ErrorIs(t, <-end, io.EOF)
		})

		t.Run(name+" that are not read are refused", func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, kind)
			sent := 0
			var err error
			for ; err == nil; sent++ {
				err = ours.Send(Message{Type: Beat, Reason: strings.Repeat("x", 1000)})
			}
			require.ErrorIs(t, err, ErrFull)
			for range sent - 1 {
				m, err := theirs.Recv()
				require.NoError(t, err)
				require.Len(t, m.Reason, 1000)
			}
			if err = ours.Send(Message{Type: Bye}); err != nil {
				// Part of the refused message had been sent: nothing may follow it.
				require.Equal(t, unix.SOCK_STREAM, kind)
				_, err = theirs.Recv()
				require.ErrorIs(t, err, io.EOF)
				return
			}
			m, err := theirs.Recv()
			require.NoError(t, err)
			require.Equal(t, Bye, m.Type)
		})
	}
}

func TestConnRefusesLongMessages(t *testing.T) {
	t.Parallel()
	ours, theirs := pair(t, unix.SOCK_STREAM)
	require.Error(t, ours.Send(Message{Type: Beat, Reason: strings.Repeat("x", maxMessage)}))
	_, err := ours.f.Write([]byte{1, 0, 0, 0})
	require.NoError(t, err)
	_, err = theirs.Recv()
	require.ErrorContains(t, err, "longer than")
	require.False(t, errors.Is(err, io.EOF))
}
