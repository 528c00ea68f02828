package proc

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"unicode"
	"unsafe"
)

// reexecEnv marks a master that has re-executed itself for the sake of its
// title; its value is the argv[0] that it was called with.
const reexecEnv = "RESQUED_ARGV0"

// comm is the short name that top and killall know.
const comm = "resqued"

// title is the memory that the kernel shows as this process's argv[0].
var title struct {
	sync.Mutex
	area []byte
	done bool
}

// SetTitle changes what ps shows as the first word of this process's command
// line. The kernel shows the memory that argv[0] was put into at exec, so the
// title is cut to that size: 160 bytes in a worker process, and in a master
// after EnsureTitle.
func SetTitle(text string) {
	title.Lock()
	defer title.Unlock()
	if !title.done {
		title.area, title.done = argvArea(), true
	}
	text = strings.Map(printable, text)
	// Spaces, not NULs, behind it: they keep the further arguments where they are.
	for i := copy(title.area, text); i < len(title.area); i++ {
		title.area[i] = ' '
	}
}

// EnsureTitle gives the title room by executing this process's binary once more
// with the same process id, arguments and environment and a padded argv[0].
// Call it before anything is started or opened. Where it is not possible the
// program simply goes on, with the title that fits.
func EnsureTitle(text string) {
	if argv0, again := os.LookupEnv(reexecEnv); again {
		_ = os.Unsetenv(reexecEnv)
		setComm()
		SetTitle(text)
		os.Args[0] = argv0
		return
	}
	argv := append([]string{padded(text)}, os.Args[1:]...)
	env := append(os.Environ(), reexecEnv+"="+os.Args[0])
	// Only returns if it did not work.
	_ = syscall.Exec(executable, argv, env)
	SetTitle(text)
}

// argvArea returns the memory of argv[0], and makes os.Args independent of it.
// It is empty if os.Args was replaced by something else: that may not be ours to
// write to.
func argvArea() []byte {
	if len(os.Args) == 0 || os.Args[0] == "" {
		return nil
	}
	stat, err := readStat("self")
	if err != nil {
		return nil
	}
	data := unsafe.StringData(os.Args[0])
	first := uint64(uintptr(unsafe.Pointer(data)))
	size := uint64(len(os.Args[0]))
	if first < stat.argStart || first+size >= stat.argEnd {
		return nil
	}
	os.Args[0] = strings.Clone(os.Args[0])
	return unsafe.Slice(data, size)
}

// setComm replaces the name "exe", which an exec of /proc/self/exe leaves.
func setComm() { _ = os.WriteFile("/proc/self/comm", []byte(comm), 0o600) }

func padded(text string) string {
	text = strings.Map(printable, text)
	if len(text) > titleSize {
		return text[:titleSize]
	}
	return text + strings.Repeat(" ", titleSize-len(text))
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
