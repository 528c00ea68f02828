// Package ledger records, outside of Redis, what jobs do, so that Redis's view of jobs and locks
// can be checked independently. A worker process and its commands append to their own file, one
// line per write, so that killed processes leave whole lines.
package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// Kinds of entries.
const (
	// Start: the job's code begins, with its lock if it has one.
	Start = "start"
	// Act: the job still runs.
	Act = "act"
	// End, Fail, Requeue: the job's code is over, with this outcome.
	End     = "end"
	Fail    = "fail"
	Requeue = "requeue"
	// Lost: it was told to stop because its lock was lost or about to be.
	Lost = "lost"
	// Die: the job is about to end its process.
	Die = "die"
	// Unit: a unit of a long job is done, and its slice continues. Complete: the last unit is
	// done.
	Unit     = "unit"
	Complete = "complete"
)

// Entry is one line.
type Entry struct {
	What string `json:"e"`
	// At is CLOCK_BOOTTIME, which all processes of a machine share.
	At time.Duration `json:"t"`
	// Proc is the name of the worker process, which is never reused, unlike a pid.
	Proc string `json:"proc"`
	PID  int    `json:"pid"`
	// Run identifies one execution of the job's code, including its descendants.
	Run string `json:"run"`
	// ID is the job's id; the following fields are only in a start.
	ID      string `json:"id"`
	Class   string `json:"class,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	// Limits are the limits under which it counts, with their keys.
	Limits []string `json:"limits,omitempty"`
	// Reserved is when the job was taken from its queue, in ms by Redis's clock.
	Reserved int64 `json:"reserved,omitempty"`
	// For a unit of a long job: its run, its number, and how many units the run had saved. A
	// completion has only the run.
	Long  string `json:"long,omitempty"`
	Unit  int    `json:"unit,omitempty"`
	State int    `json:"state,omitempty"`
}

// Writer appends to the file of a worker process. It is safe for concurrent use.
type Writer struct {
	file *os.File
	proc string
}

// Open opens the file of a worker process in dir.
func Open(dir, worker string) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, worker+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Writer{f, worker}, nil
}

// Write appends an entry, after setting its time and process.
func (w *Writer) Write(e Entry) error {
	e.At, e.PID, e.Proc = procfs.BootTime(), os.Getpid(), w.proc
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	// A single write: a kill leaves a whole line or none.
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// Tail reads what is appended to the files of a directory. It is not safe for
// concurrent use.
type Tail struct {
	dir   string
	files map[string]*file
}

// file is the reading position in one file. A file that does not grow is read less and less
// often: a long run leaves the files of thousands of dead processes.
type file struct {
	read, size int64
	grown      time.Time
	looked     time.Time
}

// lazy is the fraction (1/lazy) of the time since a file has grown after which it is read again;
// idle bounds that time.
const (
	lazy = 20
	idle = 2 * time.Second
)

// NewTail returns a Tail that begins with the existing lines.
func NewTail(dir string) *Tail { return &Tail{dir: dir, files: map[string]*file{}} }

// Of returns all lines of one process.
func Of(dir, proc string) ([]Entry, error) {
	return NewTail(dir).more(proc+".jsonl", &file{})
}

// Next returns the lines added since the last call, in order for each process. Lines of a
// process that was quiet for long may come with a later call.
func (t *Tail) Next() ([]Entry, error) { return t.next(false) }

// All is Next, but leaves nothing for a later call.
func (t *Tail) All() ([]Entry, error) { return t.next(true) }

func (t *Tail) next(all bool) ([]Entry, error) {
	dir, err := os.Open(t.dir)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(0)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	now := time.Now()
	var entries []Entry
	for _, name := range names {
		if !strings.HasSuffix(name, ".jsonl") {
			continue
		}
		f := t.files[name]
		if f == nil {
			f = &file{grown: now}
			t.files[name] = f
		}
		if !all && now.Sub(f.looked) < min(idle, now.Sub(f.grown)/lazy) {
			continue
		}
		f.looked = now
		info, err := os.Stat(filepath.Join(t.dir, name))
		if err != nil || info.Size() == f.size {
			continue
		}
		f.size, f.grown = info.Size(), now
		some, err := t.more(name, f)
		if err != nil {
			return entries, err
		}
		entries = append(entries, some...)
	}
	return entries, nil
}

func (t *Tail) more(name string, at *file) ([]Entry, error) {
	f, err := os.Open(filepath.Join(t.dir, name))
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(at.read, 0); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	var entries []Entry
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return entries, nil //nolint:nilerr // the rest of the line is still to come, or never
		}
		at.read += int64(len(line))
		var e Entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return entries, fmt.Errorf("ledger %s: %w", name, err)
		}
		entries = append(entries, e)
	}
}
