package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/wire"
)

// FailureRef names a failure record by a prefix of the SHA-256 of its bytes, in hex, and by its last known
// place. Records only move toward the head of their list, as others are removed, so an equal record behind that
// place is another failure.
type FailureRef struct {
	Digest string
	At     int64 // -1 = unknown
}

// ParseFailureRef reads "<digest>@<index>"; without a valid index, the place is unknown.
func ParseFailureRef(name string) FailureRef {
	digest, place, _ := strings.Cut(name, "@")
	at, err := strconv.ParseInt(place, 10, 64)
	if err != nil || at < 0 {
		at = -1
	}
	return FailureRef{Digest: digest, At: at}
}

// FailureID returns the name of a record at an index of its list, for ParseFailureRef.
func FailureID(record []byte, index int64) string {
	return wire.FailureID(record) + "@" + strconv.FormatInt(index, 10)
}

const (
	// trustedDigits is the shortest prefix that identifies a record near its last place without reading all others.
	trustedDigits = 8
	// refWindow is how near that is.
	refWindow = 200
)

// FindFailures returns for each name the records that it may mean. Of equal records it is the one nearest to the
// place, or none if that one has since been retried, as its mark shows. Most records are near their last place;
// for the others, all records are scanned.
func (s *Store) FindFailures(ctx context.Context, refs []FailureRef) ([][]FailureRecord, error) {
	lists, err := s.FailureLists(ctx)
	if err != nil {
		return nil, err
	}
	found, done := make([][]FailureRecord, len(refs)), make([]bool, len(refs))
	lost := false
	for i, ref := range refs {
		ref.Digest = strings.ToLower(ref.Digest)
		refs[i] = ref
		if ref.At >= 0 && len(ref.Digest) >= trustedDigits {
			if found[i], done[i], err = s.nearFailure(ctx, lists, ref); err != nil {
				return nil, err
			}
		}
		lost = lost || !done[i]
	}
	if !lost {
		return found, nil
	}
	best := make([]map[string]sighting, len(refs)) // by digest, the nearest
	for _, list := range lists {
		err := s.ScanFailed(ctx, list, func(index int64, record []byte) bool {
			sum := sha256.Sum256(record)
			digest := hex.EncodeToString(sum[:])
			for i, ref := range refs {
				if done[i] || ref.Digest == "" || ref.At >= 0 && index > ref.At {
					continue
				}
				fits := strings.HasPrefix(digest, ref.Digest)
				for other, old := range best[i] {
					// With a place, a nearer record that has since been retried was meant.
					if ref.At >= 0 && !fits && old.List == list && sameButRetried(old.Raw, record) {
						old.retried = true
						best[i][other] = old
					}
				}
				if !fits {
					continue
				}
				if best[i] == nil {
					best[i] = map[string]sighting{}
				}
				if old, ok := best[i][digest]; !ok || ref.At < 0 || distance(index, ref.At) < distance(old.Index, ref.At) {
					best[i][digest] = sighting{FailureRecord: FailureRecord{List: list, Index: index, Raw: record}}
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	for i, records := range best {
		for _, record := range records {
			if !record.retried {
				found[i] = append(found[i], record.FailureRecord)
			}
		}
	}
	return found, nil
}

// sighting is a candidate record; retried: an equal one that has since been retried is nearer to the place.
type sighting struct {
	FailureRecord
	retried bool
}

// sameButRetried reports whether b equals a except for the time of its retry.
func sameButRetried(a, b []byte) bool {
	b, ok := wire.Unretried(b)
	if !ok {
		return false
	}
	a, _ = wire.Unretried(a)
	return bytes.Equal(a, b)
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// nearFailure searches for a record at its last place and up to refWindow places before it. done: it is known
// what is meant, perhaps no record.
func (s *Store) nearFailure(ctx context.Context, lists []string, ref FailureRef) (nearest []FailureRecord, done bool, err error) {
	retried := false // the nearest one
	for _, list := range lists {
		passed, total, err := s.failedLengths(ctx, list)
		if err != nil {
			return nil, false, err
		}
		var behind [][]byte // retried records between a record and the place
		// First the place itself, the most frequent case.
		for _, from := range []int64{ref.At, max(0, ref.At-refWindow)} {
			if from >= total {
				continue
			}
			page, err := s.failedRange(ctx, list, passed, from, min(ref.At, total-1))
			if err != nil {
				return nil, false, err
			}
			behind = behind[:0]
			for i, raw := range slices.Backward(page) {
				record := FailureRecord{List: list, Index: from + int64(i), Raw: []byte(raw)}
				fits := hasDigest(record.Raw, ref.Digest)
				before, marked := wire.Unretried(record.Raw)
				first := marked && hasDigest(before, ref.Digest) // it was meant before it was retried
				if !fits && !first {
					if marked {
						behind = append(behind, record.Raw)
					}
					continue
				}
				if record.Index == ref.At && fits {
					return []FailureRecord{record}, true, nil
				}
				if len(nearest) == 0 || record.Index > nearest[0].Index {
					nearest = []FailureRecord{record}
					retried = first && !fits || slices.ContainsFunc(behind, func(other []byte) bool { return sameButRetried(record.Raw, other) })
				}
				break
			}
		}
	}
	if retried {
		return nil, true, nil
	}
	return nearest, len(nearest) > 0, nil
}

func hasDigest(record []byte, beginning string) bool {
	sum := sha256.Sum256(record)
	return strings.HasPrefix(hex.EncodeToString(sum[:]), beginning)
}
