package longjob

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxItems is the maximum number of items of a step that are remembered one by one.
	maxItems = 20_000
	// partItems is how many items one key of the state has. Each save writes one key.
	partItems = 64
)

// items is what a step remembers of single items that are done: a list of words in parts of
// partItems, each part under a key of the state. A word is the fingerprint of an item in
// base64, then "*2" if two equal items are done, then ":3" if three were still to be done at
// that time. If an item has several words, the numbers done add up, and the last word has the
// number to be done.
type items struct {
	name  string
	full  int // number of full parts
	words []string
	n     int // number of words
}

// tally counts equal items: how many are done, and how many were to be done when the list was
// last checked.
type tally struct{ done, left int }

func itemsKey(name string, part int) string {
	return stateItems + name + scopeEnd + strconv.Itoa(part)
}

func word(m mark64, c tally) string {
	text := base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(m)))
	if c.done != 1 {
		text += "*" + strconv.Itoa(c.done)
	}
	if c.left != 0 {
		text += ":" + strconv.Itoa(c.left)
	}
	return text
}

func parseWord(text string) (m mark64, c tally, ok bool) {
	text, left, hasLeft := strings.Cut(text, ":")
	text, done, hasDone := strings.Cut(text, "*")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	c.done, ok = 1, err == nil && len(raw) == 8
	if hasDone && ok {
		c.done, err = strconv.Atoi(done)
		ok = err == nil
	}
	if hasLeft && ok {
		c.left, err = strconv.Atoi(left)
		ok = err == nil
	}
	if !ok || c.done < 1 || c.left < 0 {
		return 0, c, false
	}
	return mark64(binary.BigEndian.Uint64(raw)), c, true
}

func parseMark(text string) mark64 {
	n, _ := strconv.ParseUint(text, 16, 64)
	return mark64(n)
}

func loadItems(name string, parts int, state map[string]string) map[mark64]tally {
	known := map[mark64]tally{}
	for part := range parts {
		text, ok := state[itemsKey(name, part)]
		if !ok {
			return nil // it did not fit
		}
		for w := range strings.FieldsSeq(text) {
			m, c, ok := parseWord(w)
			if !ok {
				return nil
			}
			known[m] = tally{known[m].done + c.done, c.left}
		}
	}
	return known
}

// newItems returns what a step remembers from now on. known is what it has remembered so far;
// the parts are rewritten if that differs. r.mu must be held.
func newItems(name string, known, now map[mark64]tally, parts int, r *Runner) *items {
	s := &items{name: name}
	if parts > 0 && known != nil && maps.Equal(known, now) {
		for part := range parts {
			words := strings.Fields(r.state[itemsKey(name, part)])
			s.n += len(words)
			s.full, s.words = part, words
		}
		return s
	}
	for part := range parts {
		r.put(itemsKey(name, part), nil)
	}
	for _, m := range slices.Sorted(maps.Keys(now)) {
		key, text := s.put(word(m, now[m]))
		r.put(key, &text)
	}
	return s
}

func (s *items) put(word string) (key, text string) {
	if len(s.words) >= partItems {
		s.full, s.words = s.full+1, nil
	}
	s.words = append(s.words, word)
	s.n++
	return itemsKey(s.name, s.full), strings.Join(s.words, " ")
}

func (s *items) parts() int {
	if s.n == 0 {
		return 0
	}
	return s.full + 1
}

// add remembers one more item, of which left are still to be done, and returns what to save. If
// they no longer fit, it forgets all.
func (s *items) add(m mark64, left int, state map[string]string) map[string]*string {
	_, first := state[itemsKey(s.name, 0)]
	if s.n >= maxItems || s.n > 0 && !first {
		set := map[string]*string{}
		for part := range s.parts() {
			set[itemsKey(s.name, part)] = nil
		}
		*s = items{name: s.name}
		return set
	}
	key, text := s.put(word(m, tally{1, left}))
	return map[string]*string{key: &text}
}
