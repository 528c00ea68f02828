package wire

import (
	"crypto/sha1" //nolint:gosec // a name for people to compare
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
)

// ReferenceClass is the class of payloads that refer to another payload, kept elsewhere because it is
// too large for a failure record. A receiver of such a job gets the referenced one instead.
const ReferenceClass = "Resqued::LargePayload"

// maxInline is the largest payload, in bytes, in a record that is sent as a whole. The record then
// stays below a megabyte, which every Redis accepts.
const maxInline = 128 << 10

// Reference replaces a large payload in a record.
type Reference struct {
	// ID is the id under which the payload is kept.
	ID   string
	Size int64
	SHA1 string
	// Class is the payload's class; empty if it is not a job.
	Class string
}

// Parts is Encode for a receiver that has the payload. With a small payload, text is the whole
// record. Else text lacks the payload, which belongs after gap bytes, and reference is the record
// that refers to it by id. text is nil if the payload is not valid.
func (f Failure) Parts(id string) (text []byte, gap int, reference []byte) {
	if len(f.Payload) <= maxInline {
		return f.Encode(), 0, nil
	}
	sum := sha1.Sum(f.Payload) //nolint:gosec // as above
	r := Reference{ID: id, Size: int64(len(f.Payload)), SHA1: hex.EncodeToString(sum[:])}
	before, after := f.around(0)
	if e, err := Parse(f.Payload, 0); err == nil {
		r.Class = cut(e.Class, maxExceptionText)
		gap = len(before)
		text = append(append(make([]byte, 0, len(before)+len(after)), before...), after...)
	}
	return text, gap, append(r.append(slices.Clip(before)), after...)
}

func (r Reference) append(b []byte) []byte {
	b = append(b, `{"class":"`+ReferenceClass+`","args":[`...)
	b = append(AppendString(b, r.ID), ',')
	b = append(strconv.AppendInt(b, r.Size, 10), ',')
	b = append(AppendString(b, r.SHA1), ',')
	return append(AppendString(b, r.Class), `]}`...)
}

// ReferenceOf returns the reference in a payload, if it is one.
func ReferenceOf(e Envelope) (r Reference, ok bool) {
	if e.Class != ReferenceClass || len(e.Args) != 4 {
		return Reference{}, false
	}
	for i, to := range []any{&r.ID, &r.Size, &r.SHA1, &r.Class} {
		if json.Unmarshal(e.Args[i], to) != nil {
			return Reference{}, false
		}
	}
	return r, r.ID != ""
}
