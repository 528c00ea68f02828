package mark

import "sync"

// inUse are the marks that were taken and not freed; taken counts all ever taken.
var inUse struct {
	sync.Mutex
	marks map[Mark]bool
	taken int64
}

// Take returns a new number for a run in m's worker process and a mark that no other current run
// has. Call Free once no process with that mark is left.
func (m Mark) Take() (n int64, run Mark) {
	inUse.Lock()
	defer inUse.Unlock()
	for {
		inUse.taken++
		if run = m.Run(inUse.taken); !inUse.marks[run] {
			if inUse.marks == nil {
				inUse.marks = map[Mark]bool{}
			}
			inUse.marks[run] = true
			return inUse.taken, run
		}
	}
}

// Free gives back a mark from Take.
func (m Mark) Free() {
	inUse.Lock()
	defer inUse.Unlock()
	delete(inUse.marks, m)
}

// Skip advances the count by n runs, for tests.
func Skip(n int64) {
	inUse.Lock()
	defer inUse.Unlock()
	inUse.taken += n
}
