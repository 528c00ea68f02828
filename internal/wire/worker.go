package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// WorkerName holds the parts of a worker id. The fields depend on the program that wrote it.
type WorkerName struct {
	Host string
	PID  int
	// Queues are the queues as written in the id; the Files.com fork writes "~" for ":".
	Queues []string

	// Ours: the id names thread Thread of slot Slot of a resqued.
	Ours         bool
	Slot, Thread int

	// Number is the worker's number in a node-resque process.
	Number int

	// Processes, Threads and JobsPerFork come from an id of a fork's master. An id of one of its
	// threads also has ChildPID and, in Thread, the thread's index.
	Processes, Threads, JobsPerFork int
	ChildPID                        int
}

// ours ends the host part of resqued's ids, so that it is never a host name; see WorkerID.
const ours = "~resqued"

// WorkerID returns the id under which a thread of the process proc registers in Redis:
// <host>~resqued:<pid>.<slot>.<thread>-<nonce>:<queue,queue>:,<queue>. Other programs read it as
// <host>:<pid>:<queues>, which determines each part:
//
//   - Ruby's pruner removes ids with its own host name, so the host part is never one. It is equal
//     for all threads of a host, which Ruby's page lists as one.
//   - The text after the pid makes the id unique for ever, as pids come back. Ruby's to_i reads
//     the pid itself.
//   - The last queue is repeated behind a colon, with a star as "**". Ruby's page and pruner show
//     and compare the part before that colon; a pruner created from the id, as in
//     Resque.workers.each(&:prune_dead_workers), also compares the part behind it. The two never
//     match, so it leaves all ids alone.
//
// No queues are written as "*", since an empty part keeps Ruby's workers from starting.
// Characters that the path of a URL does not keep become "-" in the host and "*" in a queue,
// which matches them.
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

// MasterID names a master in the worker field of a failure record, with its activity in place of the queues.
func MasterID(host string, pid int, doing string) string {
	return fmt.Sprintf("%s%s:%d:%s", clean(host, ":"+unrouted, '-'), ours, pid, doing)
}

// unrouted are characters that Ruby's page does not keep in the path of a URL.
const unrouted = `/\?#%"'<>&+`

// again separates the queues from the repeated last one.
const again = ":,"

// unstarred returns a pattern equivalent to q that is not the "*" of a Ruby worker for all queues,
// which would prune others.
func unstarred(q string) string {
	if q == "*" {
		return "**"
	}
	return q
}

func nonce(proc string) string {
	sum := sha256.Sum256([]byte(proc))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:6])
}

// longWorkerID is the longest id, in bytes, that job records contain unchanged.
const longWorkerID = 200

// BriefWorkerID returns a resqued thread's id for job records: a long id has the number of queues instead.
func BriefWorkerID(id string) string {
	if len(id) <= longWorkerID {
		return id
	}
	host, rest, _ := strings.Cut(id, ":")
	pid, queues, _ := strings.Cut(rest, ":")
	return fmt.Sprintf("%s:%s:%d-queues", host, pid, 1+strings.Count(once(queues), ","))
}

// WorkerText shortens a worker id of resqued by its queues, the longest part.
func WorkerText(id string) string {
	name, err := ParseWorkerID(id)
	if err != nil || !name.Ours {
		return id
	}
	return fmt.Sprintf("%s:%d.%d.%d", name.Host, name.PID, name.Slot, name.Thread)
}

// ParseWorkerID reads an id of resqued, Ruby's Resque, the Files.com fork or node-resque. A Ruby
// queue that ends in three or five numbers between colons is taken for the fork's format.
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

// thread reads slot and thread from a host as versions before 1.1 wrote it: <host>/<slot>.<thread>.
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

// fork removes the Files.com fork's numbers from the end of queues.
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

func natural(s string) (int, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// clean replaces white space, characters that are not printable, and those in also by by.
func clean(s, also string, by rune) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(also, r) {
			return by
		}
		return r
	}, s)
}
