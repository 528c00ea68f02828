package store

// plain reports whether a job ended successfully and only its record, its lock and its places under limits are left.
func (c *Completion) plain() bool {
	return c.Kind == Done && !c.Job.Capped && !c.Held && !c.Killed && !c.Mirrored && c.Job.Deaths == 0 && c.Count == nil
}

// maxPlain bounds the completions that one Redis command ends: Lua's unpack has a limit of some thousands.
const maxPlain = 1000

// order is the script's order of completions: plain ones first, and of these the ones with a lock.
type order struct {
	plain, locked int
	indices       []int
}

func plainFirst(completions []Completion) order {
	o := order{indices: make([]int, 0, len(completions))}
	collect := func(plain, locked bool) int {
		room := maxPlain
		for i := range completions {
			c := &completions[i]
			isPlain := room > 0 && c.plain()
			if isPlain {
				room--
			}
			if isPlain == plain && (!plain || (c.Job.LockKey != "") == locked) {
				o.indices = append(o.indices, i)
			}
		}
		return len(o.indices)
	}
	o.locked = collect(true, true)
	o.plain = collect(true, false)
	collect(false, false)
	return o
}
