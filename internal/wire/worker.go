package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// WorkerName holds the parts of a worker id. Which fields are set depends on the program
// that wrote it.
type WorkerName struct {
	Host string
	PID  int
	// Queues are the queues as they stand there; the Files.com fork writes "~"
	// for ":".
	Queues []string

	// Ours: the id is that of a thread of resqued, number Thread of slot Slot.
	Ours         bool
	Slot, Thread int

	// Number is the worker's number within a process of node-resque.
	Number int

	// Processes, Threads and JobsPerFork are set in an id of a fork's master;
	// ChildPID and, in Thread, the thread's index in an id of one of its threads.
	Processes, Threads, JobsPerFork int
	ChildPID                        int
}

// ours ends the host part of an id of resqued. It keeps that part from being a
// host name: see WorkerID.
const ours = "~resqued"

// WorkerID returns the id under which a thread of the process proc registers in Redis:
// <host>~resqued:<pid>.<slot>.<thread>-<nonce>:<queue,queue>:,<queue>. Others read it as
// <host>:<pid>:<queues>, and each part is made for them:
//
//   - Ruby's pruner removes ids whose host part is its own host name, so ours never is one.
//     It is the same for all threads of a host, which Ruby's page lists as one.
//   - What comes behind the pid makes the id of a thread its own, for ever: pids come
//     back. The pid itself is what Ruby's to_i reads.
//   - The last queue stands there again, behind a colon, a star as "**". Ruby's page and
//     its pruner show and compare what stands before that colon; a pruner that was made of
//     the id itself, as in Resque.workers.each(&:prune_dead_workers), also compares what
//     stands behind it. The two never match, and it leaves all ids alone.
//
// No queues are written as "*", since an empty part keeps Ruby's workers from starting.
// What a path of a page's URL does not keep is a "-" in the host, and in a queue a "*",
// which matches it.
func WorkerID(proc, host string, slot, thread, pid int, queues []string) string {
	var b strings.Builder
	if host == "" {
		host = "localhost"
	}
	b.WriteString(clean(host, ":"+unrouted, '-'))
	fmt.Fprintf(&b, "%s:%d.%d.%d-%s:", ours, pid, slot, thread, nonce(proc))
	shown := make([]string, 0, len(queues))
	for _, q := range queues {
		if q != "" {
			shown = append(shown, clean(clean(q, "", '-'), unrouted, '*'))
		}
	}
	if len(shown) == 0 {
		shown = append(shown, "*")
	}
	last := len(shown) - 1
	for i, q := range shown {
		switch {
		case i < last:
			b.WriteString(unstarred(q))
			b.WriteByte(',')
		default:
			b.WriteString(q)
			b.WriteString(again)
			b.WriteString(unstarred(q))
		}
	}
	return b.String()
}

// MasterID names a master where a failure record has the worker, with what it was doing
// in the place of the queues.
func MasterID(host string, pid int, doing string) string {
	return fmt.Sprintf("%s%s:%d:%s", clean(host, ":"+unrouted, '-'), ours, pid, doing)
}

// unrouted are the characters that the path of a URL on Ruby's page does not keep.
const unrouted = `/\?#%"'<>&+`

// again is what stands between the queues and the last of them.
const again = ":,"

// unstarred is a pattern that matches what q does and is not the star of a Ruby worker
// that takes jobs from all queues: such a one prunes others.
func unstarred(q string) string {
	if q == "*" {
		return "**"
	}
	return q
}

// nonce is a short text that is another one for each process.
func nonce(proc string) string {
	sum := sha256.Sum256([]byte(proc))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:6])
}

// longWorkerID is how many bytes of an id go with each job.
const longWorkerID = 200

// BriefWorkerID returns the id of a thread of resqued as it stands in the records of its
// jobs: in a long id the queues are replaced by their number.
func BriefWorkerID(id string) string {
	if len(id) <= longWorkerID {
		return id
	}
	host, rest, _ := strings.Cut(id, ":")
	pid, queues, _ := strings.Cut(rest, ":")
	return fmt.Sprintf("%s:%s:%d-queues", host, pid, 1+strings.Count(once(queues), ","))
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
	if w.resqued(pid) {
		for q := range strings.SplitSeq(once(queues), ",") {
			if q == "**" {
				q = "*"
			}
			w.Queues = append(w.Queues, q)
		}
		return w, nil
	}
	pid, number, numbered := strings.Cut(pid, "+")
	if w.PID, ok = natural(pid); !ok {
		return WorkerName{}, fmt.Errorf("worker id %q: its pid %q is not a number", Printable(id, 200), Printable(pid, 40))
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

// resqued reads host and pid part of an id as WorkerID writes it.
func (w *WorkerName) resqued(pid string) bool {
	host, ok := strings.CutSuffix(w.Host, ours)
	numbers, _, ok2 := strings.Cut(pid, "-")
	parts := strings.Split(numbers, ".")
	if !ok || !ok2 || host == "" || len(parts) != 3 {
		return false
	}
	var n [3]int
	for i, part := range parts {
		if n[i], ok = natural(part); !ok {
			return false
		}
	}
	w.Host, w.PID, w.Slot, w.Thread, w.Ours = host, n[0], n[1], n[2], true
	return true
}

// once takes the last queue off where it stands for the second time.
func once(queues string) string {
	if i := strings.LastIndex(queues, again); i > 0 {
		first, last := queues[:i], queues[i+len(again):]
		if last == "**" {
			last = "*"
		}
		if strings.HasSuffix(first, last) {
			return first
		}
	}
	return queues
}

// thread takes slot and thread off a host of ours as versions before 1.1 wrote it:
// <host>/<slot>.<thread>.
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

// clean replaces by by what may not stand in a part of a worker id: white space,
// whatever is not printable, and the characters of also.
func clean(s, also string, by rune) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(also, r) {
			return by
		}
		return r
	}, s)
}
