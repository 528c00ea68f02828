package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHide: what is hidden sees nothing of its host, and its host sees it.
func TestHide(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		_, err := hide(t.TempDir(), t.TempDir())
		require.ErrorContains(t, err, "takes root")
		t.Skip("the rest takes root")
	}
	// Not t.TempDir: others do not get there.
	dir, err := os.MkdirTemp("", "chaos-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ledgerDir := filepath.Join(dir, "ledger")
	require.NoError(t, os.Mkdir(ledgerDir, 0o700))
	program, err := hide(dir, ledgerDir)
	if err != nil {
		t.Skip("not permitted here: ", err)
	}
	require.FileExists(t, program)

	argv := append(hidden("elsewhere", oneUser), "sh", "-c", `id -u; hostname; ls -d /proc/1 /proc/"$0" 2>/dev/null`, strconv.Itoa(os.Getpid()))
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	require.Error(t, err, "ls finds nothing")
	require.Equal(t, strconv.Itoa(oneUser)+"\nelsewhere\n", string(out))
}
