package store

// plain reports whether nothing is left of a job that has ended well but its record and
// its lock.
func (c *Completion) plain() bool {
	return c.Kind == Done && !c.Job.Capped && !c.Held && !c.Killed && !c.Mirrored && c.Job.Deaths == 0 && c.Count == nil
}

// maxPlain bounds the completions that the script ends with one command: Lua puts no
// more than some thousand arguments into a call.
const maxPlain = 1000

// order is that in which the script gets completions: the plain ones first, and of them
// those with a lock.
type order struct {
	plain, locked int
	indices       []int // nil: as they are
}

func (o order) index(at int) int {
	if o.indices == nil {
		return at
	}
	return o.indices[at]
}

// The classes of completions in their order.
const (
	plainLocked = iota
	plainUnlocked
	notPlain
)

func plainFirst(completions []Completion) order {
	var o order
	asTheyAre, last := true, plainLocked
	each := func(take func(i, class int)) {
		room := maxPlain
		for i := range completions {
			class := notPlain
			if room > 0 && completions[i].plain() {
				class = plainLocked
				if completions[i].Job.LockKey == "" {
					class = plainUnlocked
				}
				room--
			}
			take(i, class)
		}
	}
	each(func(_, class int) {
		asTheyAre, last = asTheyAre && class >= last, class
		if class != notPlain {
			o.plain++
		}
		if class == plainLocked {
			o.locked++
		}
	})
	if asTheyAre {
		return o
	}
	o.indices = make([]int, len(completions))
	next := [...]int{plainLocked: 0, plainUnlocked: o.locked, notPlain: o.plain}
	each(func(i, class int) {
		o.indices[next[class]] = i
		next[class]++
	})
	return o
}
