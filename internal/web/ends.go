package web

import (
	"context"
	"maps"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// Ends adds up how processes have ended on all machines since this server has begun to look.
type Ends struct {
	store.ProcEnds
	// seen is what each master has counted, nil before the first look: what was before is not a rate.
	seen map[string]endsSeen
}

type endsSeen struct {
	counts store.ProcEnds
	at     time.Time
	// unread: what it has counted could not be read yet.
	unread bool
}

// endsKept is for how long the counts of a master are remembered that is not there: one whose entry
// has expired, because it did not reach Redis, goes on counting.
const endsKept = 24 * time.Hour

// mastersStore is what has the entries of the masters.
type mastersStore interface {
	MasterList(ctx context.Context) (map[string]map[string]string, error)
}

// further returns the counts with what the masters have counted since. What one has counted between
// its last entry and its end is missing.
func (e Ends) further(ctx context.Context, s mastersStore) (Ends, error) {
	masters, err := s.MasterList(ctx)
	if err != nil {
		return e, err
	}
	first, now := e.seen == nil, time.Now()
	e.seen = maps.Clone(e.seen)
	if first {
		e.seen = map[string]endsSeen{}
	}
	maps.DeleteFunc(e.seen, func(_ string, one endsSeen) bool { return now.Sub(one.at) > endsKept })
	for id, fields := range masters {
		if fields[store.FieldUnread] != "" { // it says nothing, and goes on counting
			last, known := e.seen[id]
			e.seen[id] = endsSeen{last.counts, now, last.unread || !known}
			continue
		}
		counts := store.ParseProcEnds(fields[store.FieldEnds])
		if last := e.seen[id]; !first && !last.unread {
			e.Add(counts.Since(last.counts))
		}
		e.seen[id] = endsSeen{counts: counts, at: now}
	}
	return e, nil
}
