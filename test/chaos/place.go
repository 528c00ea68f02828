package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Users of the two daemons that share a host and do not see each other. They need not exist.
const (
	oneUser   = 20_011
	otherUser = 20_012
)

// hostName returns a command prefix that sets another host name. Without root it uses a user
// namespace.
func hostName(name string) []string {
	script := `hostname "$0" && exec "$@"`
	for _, flags := range [][]string{{"--uts"}, {"--map-root-user", "--uts"}} {
		argv := append([]string{"unshare"}, append(flags, "sh", "-c", script, name)...)
		if exec.Command(argv[0], append(argv[1:], "true")...).Run() == nil {
			return argv
		}
	}
	return nil
}

// hidden returns a command prefix that sets a host name and a user, with a /proc that shows only
// this user's processes, like ProtectProc=invisible. Changing the user clears the parent-death
// signal, so that is set afterwards.
func hidden(name string, user int) []string {
	script := `hostname "$0" && mount -t proc -o hidepid=2 proc /proc && id=$1 && shift &&
exec setpriv --reuid="$id" --regid="$id" --clear-groups --pdeathsig=KILL "$@"`
	return []string{"unshare", "--uts", "--mount", "--propagation=private", "sh", "-c", script, name, strconv.Itoa(user)}
}

// hide prepares the directory of the run for daemons of other users, and returns a program that
// they can start. The error is why that is impossible.
func hide(dir, ledgerDir string) (program string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("that takes root")
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// The program built by go run is in a directory that others cannot access.
	program = filepath.Join(dir, "daemon")
	if err := copyFile(self, program); err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(ledgerDir, 0o733)); err != nil { //nolint:gosec // others write there
		return "", err
	}
	argv := append(hidden("chaos-probe", oneUser), "sh", "-c", `test -x "$0" && test -w "$1" && ! test -e /proc/1`, program, ledgerDir)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w %.200s", err, out)
	}
	return program, nil
}

func copyFile(from, to string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // others start it
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
