package web

import (
	"context"
	"maps"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// Ends sums up how processes have ended on all machines since this server's first look.
type Ends struct {
	store.ProcEnds
	// seen is the last count of each master; nil before the first look: earlier ends don't count.
	seen map[string]endsSeen
}

type endsSeen struct {
	counts store.ProcEnds
	at     time.Time
	// unread: its counts could not be read yet.
	unread bool
}

// endsKept is how long a missing master's counts are kept: it may only have lost Redis.
const endsKept = 24 * time.Hour

type mastersStore interface {
	MasterList(ctx context.Context) (map[string]map[string]string, error)
}

// further adds what the masters have counted since; after their last entry, counts are lost.
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
		if fields[store.FieldUnread] != "" { // unreadable, but it continues to count
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
