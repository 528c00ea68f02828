package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPIDFile(t *testing.T) {
	t.Parallel()

	t.Run("it holds the pid, and is gone when it is removed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.pid")
		f, err := WritePIDFile(path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(os.Getpid())+"\n", string(text))
		require.NoError(t, f.Remove())
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("a second process is refused, and told which one holds it", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.pid")
		p := start(t, "pidfile", "FILE="+path)
		require.Equal(t, "held", p.Line(t))
		_, err := WritePIDFile(path)
		require.ErrorContains(t, err, "held by the running process "+strconv.Itoa(p.Process.Pid)+":")
	})

	t.Run("a file that a dead process left is taken over, whatever it holds", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.pid")
		p := start(t, "pidfile", "FILE="+path)
		require.Equal(t, "held", p.Line(t))
		require.NoError(t, p.Process.Kill())
		require.Equal(t, "EOF", p.Line(t))
		require.FileExists(t, path)
		require.NoError(t, os.WriteFile(path, []byte("12345678901234567890 and more\n"), 0o600))
		f, err := WritePIDFile(path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(os.Getpid())+"\n", string(text))
		require.NoError(t, f.Remove())
	})

	t.Run("a file that was replaced meanwhile is left alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.pid")
		f, err := WritePIDFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.WriteFile(path, []byte("1\n"), 0o600))
		require.NoError(t, f.Remove())
		require.FileExists(t, path)
	})

	t.Run("a directory that does not exist is named", func(t *testing.T) {
		t.Parallel()
		_, err := WritePIDFile("/nowhere/x.pid")
		require.ErrorContains(t, err, "/nowhere")
	})
}

func TestPIDFileThatIsALink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	require.NoError(t, os.Symlink("elsewhere", path))
	_, err := WritePIDFile(path)
	require.ErrorContains(t, err, "is a symbolic link")
}
