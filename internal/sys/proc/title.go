package proc

import (
	"os"
	"strings"
	"sync"
	"unicode"
	"unsafe"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// comm is the short name that top and killall know.
const comm = "resqued"

// TitleOf is what the title of each of our processes begins with. Ruby's Resque takes a
// process for a worker, whose id must not be removed, if its command line has "resque-" and
// a digit in it.
const TitleOf = "resqued (resque-3): "

// title is the memory that the kernel shows as this process's command line.
var title struct {
	sync.Mutex
	// area begins where argv[0] does; the first args bytes of it are the arguments.
	area []byte
	args int
	done bool
	// store stands in front of what is shown, where there are several.
	store string
}

// NameStore has the titles of this process name the store that it belongs to, "" for none.
func NameStore(name string) {
	title.Lock()
	defer title.Unlock()
	title.store = name
}

// argv0 is argv[0] where the kernel put it. os.Args is copied at once, before
// anybody holds a part of it, because a title overwrites all arguments.
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

// SetTitle changes what ps shows as this process's command line. The kernel shows
// the memory that the arguments were put into at exec, and, when their last byte
// is written over, that of the environment behind them; Go has copies of both.
// The title is cut to that size. In a worker process argv[0] is long enough.
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
	// Spaces up to the end of the arguments: a NUL there would tell the kernel that
	// they are still what they were.
	for ; n < title.args; n++ {
		title.area[n] = ' '
	}
	clear(title.area[n:])
}

// titleArea returns the memory of the arguments, and as much of the environment
// behind it as a title may need. It is empty where the arguments are not found.
func titleArea() (area []byte, args int) {
	setComm()
	stat, err := procfs.SelfStat()
	if err != nil || argv0 == "" {
		return nil, 0
	}
	data := unsafe.StringData(argv0)
	// os.Args may have been replaced before: then this is not the kernel's memory.
	if uint64(uintptr(unsafe.Pointer(data))) != stat.ArgStart || stat.ArgEnd <= stat.ArgStart {
		return nil, 0
	}
	args = int(stat.ArgEnd - stat.ArgStart)
	if args > titleSize || stat.EnvStart != stat.ArgEnd || stat.EnvEnd <= stat.EnvStart {
		return unsafe.Slice(data, args), args - 1 // the last NUL stays
	}
	return unsafe.Slice(data, min(int(stat.EnvEnd-stat.ArgStart), titleSize+1)), args
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
