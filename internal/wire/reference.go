package wire

import (
	"crypto/sha1" //nolint:gosec // a name for people to compare
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
)

// ReferenceClass is the class of payloads that only refer to another one, which is kept
// elsewhere because a failure record with it would be too large. Whoever takes such a
// job has the other one put in its place.
const ReferenceClass = "Resqued::LargePayload"

// maxInline is how many bytes of a payload a record has that is sent as a whole: with
// what else may stand in it that is less than a megabyte, which every Redis takes.
const maxInline = 128 << 10

// Reference is what stands in a record in the place of a large payload.
type Reference struct {
	// ID is that under which the payload is kept.
	ID   string
	Size int64
	SHA1 string
	// Class is that of the payload; empty if it is not a job.
	Class string
}

// Parts is Encode for a receiver who has the payload. If that is small, text is the whole
// record. Else it is left out of text, and belongs behind gap bytes; reference is the
// record that names it by an id instead. Bytes that are not a payload cannot stand in a
// record, so that text is nil then.
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

// ReferenceOf returns what a payload refers to, if it is a reference.
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
