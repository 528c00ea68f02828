//go:build linux

package runners_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// descriptors returns what the descriptors of a process refer to.
func descriptors(t *testing.T, pid int) []string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	var links []string
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join(fmt.Sprintf("/proc/%d/fd", pid), entry.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// inode returns what one descriptor of a process refers to.
func inode(t *testing.T, pid, fd int) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	require.NoError(t, err)
	return link
}

// crowded leaves a process that many free descriptors, and returns its limit of open files.
func crowded(t *testing.T, pid, room int) (limit uint64) {
	t.Helper()
	var had unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had))
	for free := 0; room > 0; limit++ {
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, limit)); err != nil {
			free++
		}
		if free > room {
			break
		}
	}
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: had.Max}, nil))
	return limit
}
