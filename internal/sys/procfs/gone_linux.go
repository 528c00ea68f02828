package procfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// view hashes the rights that the kernel compares before it shows a process's environment to
// another one (ptrace(2), access mode checking).
func view() string {
	ruid, euid, suid := unix.Getresuid()
	rgid, egid, sgid := unix.Getresgid()
	if ruid != euid || ruid != suid || rgid != egid || rgid != sgid {
		return "" // it does not even see its own children
	}
	namespace, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return ""
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	var capabilities []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "CapPrm:") || strings.HasPrefix(line, "CapEff:") {
			capabilities = append(capabilities, line)
		}
	}
	// AppArmor and SELinux separate domains; EINVAL without either.
	domain, err := os.ReadFile("/proc/self/attr/current")
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s %s %s", ruid, rgid, namespace, capabilities, domain))
	return hex.EncodeToString(sum[:8])
}

// cgroup returns this process's control group of version 2: "cgroup:[number]/path".
func cgroup() string {
	namespace, err := os.Readlink("/proc/self/ns/cgroup")
	if err != nil {
		return ""
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		// The root holds all processes, and groups outside it cannot be read.
		if ok && path != "/" && path == filepath.Clean(path) && !strings.HasPrefix(path, "/..") {
			return namespace + path
		}
	}
	return ""
}

// emptied reports whether a control group holds only this process and its descendants. A group's
// list hides no process that has a pid here, and shows others as 0.
func emptied(group string) bool {
	own := cgroup()
	namespace, path, _ := strings.Cut(group, "]")
	ownNamespace, ownPath, _ := strings.Cut(own, "]")
	if own == "" || namespace != ownNamespace || path != filepath.Clean(path) || strings.HasPrefix(path, "/..") || path == "/" {
		return false
	}
	root, ok := cgroupRoot()
	if !ok {
		return false
	}
	// Only a process that finds itself in its own group may conclude that a missing group is
	// gone.
	if members, err := membersOf(root + ownPath); err != nil || !members[os.Getpid()] {
		return false
	}
	// One look is not a snapshot, as in sweep.
	for clean, looks := 0, 0; clean < cleanLooks; looks++ {
		members, err := membersOf(root + path)
		if err != nil || looks == 10*cleanLooks {
			return false
		}
		clean++
		for pid := range members {
			own, gone := descends(pid)
			if !own && !gone {
				return false
			}
			if gone {
				clean = 0 // it may have started another process
			}
		}
	}
	return true
}

// cgroupRoot returns where the root of this process's cgroup namespace is mounted.
func cgroupRoot() (string, bool) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) >= 5 && strings.HasPrefix(kind, "cgroup2 ") && fields[3] == "/" && !strings.Contains(fields[4], `\`) {
			return fields[4], true
		}
	}
	return "", false
}

// membersOf returns the processes in a control group and below it; none if the group does not
// exist.
func membersOf(dir string) (map[int]bool, error) {
	members := map[int]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		for f := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return fmt.Errorf("%s: %q is not a process", path, f)
			}
			members[pid] = true
		}
		return nil
	})
	return members, err
}

// descends reports whether a process is this one or a descendant, and whether it is gone.
func descends(pid int) (own, gone bool) {
	self := os.Getpid()
	for at, steps := pid, 0; at > 0 && steps < 1000; steps++ {
		if at == self {
			return true, false
		}
		s, err := ReadStat(at)
		if err != nil {
			break
		}
		at = s.Parent
	}
	return false, pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
