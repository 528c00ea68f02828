//go:build !linux

package runner

import (
	"errors"
	"net"
	"os"
	"time"
)

var errNoFork = errors.New("this system cannot do that; each process boots by itself")

func canFork() error { return errNoFork }

func templateOf(*os.File) (*net.UnixConn, error) { return nil, errNoFork }

func (q *process) ask([]*os.File, time.Time) error { return errNoFork }

// unread is unknown here.
func unread(int) int { return 0 }

func (q *process) meet() error { return errNoFork }
