package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// WorkerName is what a worker id says. Which fields are set depends on who
// wrote it.
type WorkerName struct {
	Host string
	PID  int
	// Queues are the queues as they stand there; the Files.com fork writes "~"
	// for ":".
	Queues []string

	// Ours: the id is one of resqued's threads, and Slot and Thread say which.
	Ours         bool
	Slot, Thread int

	// Number is the worker's number within a process of node-resque.
	Number int

	// Processes, Threads and JobsPerFork are set in an id of a fork's master;
	// ChildPID and, in Thread, the thread's index in an id of one of its threads.
	Processes, Threads, JobsPerFork int
	ChildPID                        int
}

// WorkerID returns the id under which a thread registers in Redis:
// <host>/<slot>.<thread>:<pid>:<queue,queue>. Ruby's Resque splits it at colons
// and prunes ids whose first part is its own hostname, so the slot and thread
// belong to that part. No queues are written as "*", since an empty last part
// keeps Ruby's workers from starting.
func WorkerID(host string, slot, thread, pid int, queues []string) string {
	var b strings.Builder
	if host == "" {
		host = "localhost"
	}
	b.WriteString(clean(host, ":/"))
	fmt.Fprintf(&b, "/%d.%d:%d:", slot, thread, pid)
	n := 0
	for _, q := range queues {
		if q == "" {
			continue
		}
		if n++; n > 1 {
			b.WriteByte(',')
		}
		b.WriteString(clean(q, ""))
	}
	if n == 0 {
		b.WriteByte('*')
	}
	return b.String()
}

// longWorkerID is how many bytes of an id go with each job.
const longWorkerID = 200

// BriefWorkerID returns the id of a thread of ours as the records of its jobs have it:
// of a long one all but the queues, instead of which it says how many they are.
func BriefWorkerID(id string) string {
	if len(id) <= longWorkerID {
		return id
	}
	host, rest, _ := strings.Cut(id, ":")
	pid, queues, _ := strings.Cut(rest, ":")
	return fmt.Sprintf("%s:%s:%d-queues", host, pid, 1+strings.Count(queues, ","))
}

// ParseWorkerID reads an id of resqued, Ruby's Resque, the Files.com fork or
// node-resque. A queue of Ruby's that ends in three or five numbers between
// colons looks like the fork's and is taken for it.
func ParseWorkerID(id string) (WorkerName, error) {
	host, rest, ok := strings.Cut(id, ":")
	pid, queues, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 || host == "" || queues == "" {
		return WorkerName{}, fmt.Errorf("worker id %q: host:pid:queues is its least form", Printable(id, 200))
	}
	w := WorkerName{Host: host}
	pid, number, numbered := strings.Cut(pid, "+")
	if w.PID, ok = natural(pid); !ok {
		return WorkerName{}, fmt.Errorf("worker id %q: its pid %q is no number", Printable(id, 200), Printable(pid, 40))
	}
	if numbered {
		if w.Number, ok = natural(number); !ok {
			return WorkerName{}, fmt.Errorf("worker id %q: its number %q is none", Printable(id, 200), Printable(number, 40))
		}
	}
	w.thread()
	if !w.Ours {
		queues = w.fork(queues)
	}
	w.Queues = strings.Split(queues, ",")
	return w, nil
}

// thread takes slot and thread off a host of ours.
func (w *WorkerName) thread() {
	slash := strings.LastIndexByte(w.Host, '/')
	if slash < 0 {
		return
	}
	slot, thread, ok := strings.Cut(w.Host[slash+1:], ".")
	if !ok {
		return
	}
	s, ok := natural(slot)
	t, ok2 := natural(thread)
	if ok && ok2 {
		w.Host, w.Slot, w.Thread, w.Ours = w.Host[:slash], s, t, true
	}
}

// fork takes the numbers of the Files.com fork off the end of queues.
func (w *WorkerName) fork(queues string) string {
	var numbers []int // last first
	rest := queues
	for len(numbers) < 5 {
		colon := strings.LastIndexByte(rest, ':')
		if colon < 0 {
			break
		}
		n, ok := natural(rest[colon+1:])
		if !ok {
			break
		}
		numbers = append(numbers, n)
		rest = rest[:colon]
	}
	if rest == "" {
		return queues
	}
	switch len(numbers) {
	case 5:
		w.Thread, w.ChildPID = numbers[0], numbers[1]
		numbers = numbers[2:]
	case 3:
	default:
		return queues
	}
	w.JobsPerFork, w.Threads, w.Processes = numbers[0], numbers[1], numbers[2]
	return rest
}

// natural reads a number written with digits alone.
func natural(s string) (int, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// clean replaces what may not stand in a part of a worker id: white space,
// whatever is not printable, and the characters of also.
func clean(s, also string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(also, r) {
			return '-'
		}
		return r
	}, s)
}
