package devredis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	stateName   = "url"
	findTimeout = 2 * time.Second
)

// ErrNotRunning reports that no server of this user answers.
var ErrNotRunning = errors.New("resqued dev is not running")

// Dir returns the directory through which programs of one user find each other's server. It is
// below runtimeDir, or below the directory for temporary files if that is empty.
func Dir(runtimeDir string) string {
	if runtimeDir != "" {
		return filepath.Join(runtimeDir, "resqued-dev")
	}
	return filepath.Join(os.TempDir(), "resqued-dev-"+strconv.Itoa(os.Getuid()))
}

// Find returns the URL of the server that Start left in dir, if it still answers.
func Find(dir string) (string, error) {
	if err := checkOwner(dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", ErrNotRunning
		}
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		return "", ErrNotRunning
	}
	found := strings.TrimSpace(string(text))
	u, err := url.Parse(found)
	if err != nil {
		return "", ErrNotRunning
	}
	conn, err := net.DialTimeout("tcp", u.Host, findTimeout)
	if err != nil {
		return "", ErrNotRunning
	}
	_ = conn.Close()
	return found, nil
}

func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkOwner(dir)
}

// checkOwner refuses a directory that belongs to another user, who could redirect this user's
// jobs to a different Redis.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of this user's alone: remove it", dir)
	}
	return nil
}
