package procfs

import "strconv"

// ours reports whether everything that the worker process may have left descends
// from this process: it is that one's master, and the parent of all orphans.
func (s *Sweeper) ours() bool {
	return s.master != nil && ListsChildren() && isSubreaper() && s.master()
}

// below is a survey of the descendants of this process alone: what a whole machine
// costs grows with others' processes, and a lock waits for it. The living worker
// processes other than proc are left out with all that is theirs. It fails where it
// might have overlooked one.
func below(proc string, see func(pid string) (process, bool, error)) (processes, error) {
	found := processes{}
	todo, err := childrenOf("self")
	for err == nil && len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		name := strconv.Itoa(pid)
		p, ok, seen := see(name)
		if err = seen; !ok || p.worker && p.proc != proc {
			continue
		}
		found[pid] = p
		var children []int
		children, err = childrenOf(name)
		todo = append(todo, children...)
	}
	return found, err
}
