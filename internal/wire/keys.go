package wire

import (
	"bytes"
	"fmt"
)

// keySet remembers the keys of one object and rejects keys that JSON readers treat differently:
// encoding/json ignores case and takes the last of equal keys; Ruby's JSON does not ignore case.
type keySet struct {
	// exact and folded have a bit for each known key that was seen in its own spelling, or in
	// any.
	exact, folded uint8
	few           [8][]byte
	n             int
	many          map[string]struct{} // once few is full
}

func (k *keySet) has(known int) bool { return k.exact&(1<<known) != 0 }

// add notes a key. It returns the index of a known key, else -1, and what is wrong, or "".
func (k *keySet) add(key []byte) (known int, clash string) {
	known = -1
	for i, name := range keyNames {
		same := string(key) == name
		if !same && !bytes.EqualFold(key, []byte(name)) {
			continue
		}
		bit := uint8(1) << i
		switch {
		case k.folded&bit == 0:
		case same && k.exact&bit != 0:
			return i, fmt.Sprintf("the key %q is there twice", name)
		default:
			return i, fmt.Sprintf("the key %q is there in two spellings", name)
		}
		k.folded |= bit
		if same {
			k.exact |= bit
			return i, ""
		}
		break
	}
	if k.repeated(key) {
		return known, fmt.Sprintf("the key %q is there twice", Printable(string(key), 40))
	}
	return known, ""
}

// repeated notes an unknown key and reports whether it was there before.
func (k *keySet) repeated(key []byte) bool {
	if k.many != nil {
		if _, twice := k.many[string(key)]; twice {
			return true
		}
		k.many[string(key)] = struct{}{}
		return false
	}
	for _, other := range k.few[:k.n] {
		if bytes.Equal(other, key) {
			return true
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return false
	}
	k.many = make(map[string]struct{}, 2*k.n)
	for _, other := range k.few {
		k.many[string(other)] = struct{}{}
	}
	k.many[string(key)] = struct{}{}
	return false
}
