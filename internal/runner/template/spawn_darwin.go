package template

import (
	"bufio"
	"errors"
	"os"
	"sync/atomic"

	"github.com/resqued/resqued/internal/sys/program"
)

// process exists only to compile: templates are not supported here.
type process struct {
	cmd      *os.Process
	greeting struct{ Language, App string }
	socket   *os.File
	control  *bufio.Reader
	tail     program.Tail
	late     atomic.Bool
	hung     atomic.Bool
}

// Supported reports whether this system can have templates.
const Supported = false

func requestPair() ([2]int, error) { return [2]int{}, errors.ErrUnsupported }

func firstOf(*os.File) string { return "" }

func (t *Template) spawn() (*process, error) { return nil, errors.ErrUnsupported }

func (p *process) close() {}
