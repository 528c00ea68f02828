package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// FailureRef names a failure record: by the beginning of the SHA-256 of its bytes, in hex,
// and by where it was seen last, if that is known: a record moves toward the head of its
// list as others are removed.
type FailureRef struct {
	Digest string
	At     int64 // -1 = not known
}

// ParseFailureRef reads "<digest>@<index>". A name without an index, or with something else
// there, has no place.
func ParseFailureRef(name string) FailureRef {
	digest, place, _ := strings.Cut(name, "@")
	at, err := strconv.ParseInt(place, 10, 64)
	if err != nil || at < 0 {
		at = -1
	}
	return FailureRef{Digest: digest, At: at}
}

const (
	// trustedDigits is how long a beginning must be for a record near its last place to be
	// taken for the one that is meant, without a look at all others.
	trustedDigits = 8
	// refWindow is how near that is.
	refWindow = 200
)

// FindFailures returns for each name the records that it may mean. Of records that are equal
// byte by byte it is one. Most are found where they were seen last; for the others all
// records are looked at, but not read.
func (s *Store) FindFailures(ctx context.Context, refs []FailureRef) ([][]FailureRecord, error) {
	lists, err := s.FailureLists(ctx)
	if err != nil {
		return nil, err
	}
	found := make([][]FailureRecord, len(refs))
	lost := false
	for i, ref := range refs {
		ref.Digest = strings.ToLower(ref.Digest)
		refs[i] = ref
		if ref.At >= 0 && len(ref.Digest) >= trustedDigits {
			if found[i], err = s.nearFailure(ctx, lists, ref); err != nil {
				return nil, err
			}
		}
		lost = lost || len(found[i]) == 0
	}
	if !lost {
		return found, nil
	}
	best := make([]map[string]FailureRecord, len(refs)) // of each digest the nearest
	for _, list := range lists {
		err := s.ScanFailed(ctx, list, func(index int64, record []byte) bool {
			sum := sha256.Sum256(record)
			digest := hex.EncodeToString(sum[:])
			for i, ref := range refs {
				if len(found[i]) > 0 || ref.Digest == "" || !strings.HasPrefix(digest, ref.Digest) {
					continue
				}
				if best[i] == nil {
					best[i] = map[string]FailureRecord{}
				}
				if old, ok := best[i][digest]; !ok || ref.At < 0 || distance(index, ref.At) < distance(old.Index, ref.At) {
					best[i][digest] = FailureRecord{List: list, Index: index, Raw: record}
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
			found[i] = append(found[i], record)
		}
	}
	return found, nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// nearFailure looks for a record where it was seen last, and up to refWindow places before.
func (s *Store) nearFailure(ctx context.Context, lists []string, ref FailureRef) ([]FailureRecord, error) {
	var nearest []FailureRecord
	for _, list := range lists {
		passed, total, err := s.failedLengths(ctx, list)
		if err != nil {
			return nil, err
		}
		// The place itself first: there it is, most often.
		for _, from := range []int64{ref.At, max(0, ref.At-refWindow)} {
			if from >= total {
				continue
			}
			page, err := s.failedRange(ctx, list, passed, from, min(ref.At, total-1))
			if err != nil {
				return nil, err
			}
			for i, raw := range slices.Backward(page) {
				sum := sha256.Sum256([]byte(raw))
				if !strings.HasPrefix(hex.EncodeToString(sum[:]), ref.Digest) {
					continue
				}
				record := FailureRecord{List: list, Index: from + int64(i), Raw: []byte(raw)}
				if record.Index == ref.At {
					return []FailureRecord{record}, nil
				}
				if len(nearest) == 0 || record.Index > nearest[0].Index {
					nearest = []FailureRecord{record}
				}
				break
			}
		}
	}
	return nearest, nil
}
