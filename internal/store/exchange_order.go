package store

// plain reports whether a job ended successfully and only its record and lock are left.
func (c *Completion) plain() bool {
	return c.Kind == Done && !c.Job.Capped && !c.Held && !c.Killed && !c.Mirrored && c.Job.Deaths == 0 && c.Count == nil
}

// maxPlain bounds the completions that one Redis command ends: Lua's unpack has a limit of some thousands.
const maxPlain = 1000

// order is the script's order of completions: plain ones first, and of these the ones with a lock.
type order struct {
	plain, locked int
	indices       []int // nil: unchanged order
}

func (o order) index(at int) int {
	if o.indices == nil {
		return at
	}
	return o.indices[at]
}

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
