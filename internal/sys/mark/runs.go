package mark

import "sync"

// inUse are the marks of runs that were taken and not given back, and taken counts them all.
var inUse struct {
	sync.Mutex
	marks map[Mark]bool
	taken int64
}

// Take returns a number for a run in the worker process of m that no other run of this process
// has had, and its mark, which no other has that goes on. Whoever calls it must call Free when
// no process with that mark is left.
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

// Free gives back a mark that Take has returned.
func (m Mark) Free() {
	inUse.Lock()
	defer inUse.Unlock()
	delete(inUse.marks, m)
}

// Skip counts n runs that there were not, in tests.
func Skip(n int64) {
	inUse.Lock()
	defer inUse.Unlock()
	inUse.taken += n
}
