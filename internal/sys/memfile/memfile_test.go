package memfile_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/memfile"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, content := range [][]byte{nil, []byte("text"), bytes.Repeat([]byte("x"), 1<<20)} {
		f, err := memfile.New("a file", content)
		require.NoError(t, err)
		got, err := io.ReadAll(f)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
		require.NoError(t, f.Close())
	}
}

func TestSealed(t *testing.T) {
	t.Parallel()
	f, err := memfile.Sealed("a file", []byte("text"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for range 2 {
		got, err := memfile.ReadSealed(f)
		require.NoError(t, err)
		require.Equal(t, "text", string(got))
	}
	if runtime.GOOS == "linux" {
		_, err = f.WriteAt([]byte("s"), 0)
		require.Error(t, err)
	}
}

func TestReadSealedRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join(t.TempDir(), ".."))
	require.NoError(t, err)
	_, err = memfile.ReadSealed(f)
	require.ErrorIs(t, err, memfile.ErrUnsealed)
	require.NoError(t, f.Close())
}
