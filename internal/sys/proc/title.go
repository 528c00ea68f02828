package proc

import (
	"os"
	"strings"
	"sync"
	"unicode"
	"unsafe"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// comm is the short name that top and killall use.
const comm = "resqued"

// TitleOf is the prefix of the titles of our processes. Ruby's Resque takes a process for a live
// worker, whose id must not be removed, if its command line contains "resque-" and a digit.
const TitleOf = "resqued (resque-3): "

// title is the memory that the kernel shows as this process's command line.
var title struct {
	sync.Mutex
	// area begins at argv[0]; its first args bytes are the arguments.
	area []byte
	args int
	done bool
	// store is shown in the titles if there are several stores.
	store string
}

// NameStore puts the name of this process's store into its titles; "" = no name.
func NameStore(name string) {
	title.Lock()
	defer title.Unlock()
	title.store = name
}

// argv0 is argv[0] where the kernel put it. os.Args is copied before anything refers to it,
// because a title overwrites all arguments.
var argv0 string

func init() {
	if len(os.Args) == 0 {
		return
	}
	argv0 = os.Args[0]
	for i, arg := range os.Args {
		os.Args[i] = strings.Clone(arg)
	}
}

// SetTitle changes what ps shows as this process's command line, cut to the available memory.
// The kernel shows the memory of the arguments and, if their last byte was overwritten, the
// environment behind it; Go has copies of both. In a worker process argv[0] is long enough.
func SetTitle(text string) {
	title.Lock()
	defer title.Unlock()
	if !title.done {
		title.area, title.args = titleArea()
		title.done = true
	}
	if len(title.area) == 0 {
		return
	}
	if rest, ours := strings.CutPrefix(text, TitleOf); ours && title.store != "" {
		text = TitleOf + "store " + title.store + " " + rest
	}
	text = strings.Map(printable, text)
	n := copy(title.area[:len(title.area)-1], text)
	// Spaces up to the end of the arguments: a NUL there would tell the kernel that the
	// arguments are unchanged.
	for ; n < title.args; n++ {
		title.area[n] = ' '
	}
	clear(title.area[n:])
}

// titleArea returns the memory of the arguments and the environment behind them, as far as a
// title may need it. It is empty if the arguments are not found.
func titleArea() (area []byte, args int) {
	setComm()
	stat, err := procfs.SelfStat()
	if err != nil || argv0 == "" {
		return nil, 0
	}
	data := unsafe.StringData(argv0)
	// If os.Args was replaced, this is not the kernel's memory.
	if uint64(uintptr(unsafe.Pointer(data))) != stat.ArgStart || stat.ArgEnd <= stat.ArgStart {
		return nil, 0
	}
	args = int(stat.ArgEnd - stat.ArgStart)
	if args > titleSize || stat.EnvStart != stat.ArgEnd || stat.EnvEnd <= stat.EnvStart {
		return unsafe.Slice(data, args), args - 1 // the last NUL stays
	}
	return unsafe.Slice(data, min(int(stat.EnvEnd-stat.ArgStart), titleSize+1)), args
}

// setComm replaces "exe", the name after an exec of /proc/self/exe.
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
