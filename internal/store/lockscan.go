package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The bounds of a search for locks: it must neither block a server with many keys nor fill the caller's memory.
const (
	scanCount    = 500
	maxScans     = 20000    // 10 million keys
	maxScanBytes = 64 << 20 // of keys kept
)

// lockPrefixes are the prefixes of locks' keys. Class locks may have other names; resqued:held has the held
// ones.
var lockPrefixes = []named{
	{LocketLock, keyJobLocks},
	{TimeoutLock, keyClassLock},
	{LonerMarker, MarkerKey("")},
}

// Locks returns the existing locks of a kind ("" = all), sorted by kind and key. It returns at most limit; cut
// reports that there are more, and the selection is then arbitrary.
func (s *Store) Locks(ctx context.Context, kind string, limit int) (locks []LockInfo, cut bool, err error) {
	found := map[string]string{} // key: kind
	size := 0
	add := func(key, kind string) bool {
		if _, ok := found[key]; ok {
			return true
		}
		if len(found) >= limit || size > maxScanBytes {
			cut = true
			return false
		}
		found[key] = kind
		size += len(key)
		return true
	}
	if kind == "" || kind == TimeoutLock {
		held, err := s.heldKeys(ctx)
		if err != nil {
			return nil, false, err
		}
		for key := range held {
			if !add(key, TimeoutLock) {
				break
			}
		}
	}
	pattern := "lo" // their common prefix, for a single scan
	for _, p := range lockPrefixes {
		if p.kind == kind {
			pattern = p.key
		}
	}
	complete, err := s.scan(ctx, pattern, func(key string) bool {
		k := kindOf(key)
		return k == "" || kind != "" && k != kind || add(key, k)
	})
	if err != nil {
		return nil, false, fmt.Errorf("list locks: %w", err)
	}
	list := make([]named, 0, len(found))
	for key, kind := range found {
		list = append(list, named{kind, key})
	}
	order := func(kind string) int {
		return slices.IndexFunc(lockPrefixes, func(p named) bool { return p.kind == kind })
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(order(a.kind)-order(b.kind), strings.Compare(a.key, b.key))
	})
	locks, err = s.look(ctx, list, 0)
	return locks, cut || !complete, err
}

// FindLocks returns the locks that a name may mean: their key, with or without the namespace; or else the key without
// its kind's prefix (Sync[42] for locket:job_locks:Sync[42]).
func (s *Store) FindLocks(ctx context.Context, name string) ([]LockInfo, error) {
	held, err := s.heldKeys(ctx)
	if err != nil {
		return nil, err
	}
	var exact, short []named
	names := []string{name}
	if rest, ok := strings.CutPrefix(name, s.db.Prefix); ok {
		names = append(names, rest)
	}
	for _, key := range names {
		if held[key] {
			exact = append(exact, named{TimeoutLock, key})
		} else if kind := kindOf(key); kind != "" {
			exact = append(exact, named{kind, key})
		}
	}
	for _, p := range append(slices.Clone(lockPrefixes), named{LonerMarker, MarkerKey(keyClassLock)}) {
		short = append(short, named{p.kind, p.key + name})
	}
	for _, list := range [][]named{exact, short} {
		locks, err := s.look(ctx, list, payloadRoom)
		if err != nil || len(locks) > 0 {
			return locks, err
		}
	}
	return nil, nil
}

// scan visits the keys, without the namespace, with a prefix until visit returns false, in any order and some perhaps
// twice. It returns false if it gave up before the end.
func (s *Store) scan(ctx context.Context, begin string, visit func(key string) bool) (complete bool, err error) {
	node, err := s.db.Node(ctx)
	if err != nil {
		return false, err
	}
	var cursor uint64
	for range maxScans {
		keys, next, err := node.Scan(ctx, cursor, globEscape(s.db.Key(begin))+"*", scanCount).Result()
		if err != nil {
			return false, err
		}
		for _, key := range keys {
			if !visit(strings.TrimPrefix(key, s.db.Prefix)) {
				return true, nil
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
	return false, nil
}

// heldKeys returns the keys, without the namespace, of class locks held by jobs of registered processes.
func (s *Store) heldKeys(ctx context.Context) (map[string]bool, error) {
	procs, err := s.db.Read.ZRange(ctx, s.db.Key(keyProcs), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	lists := make([]*redis.StringSliceCmd, len(procs))
	err = s.readEach(ctx, len(procs), func(pipe redis.Pipeliner, i int) { lists[i] = pipe.HVals(ctx, s.db.Key(keyHeld)+procs[i]) })
	if err != nil {
		return nil, fmt.Errorf("locks of processes: %w", err)
	}
	keys := map[string]bool{}
	for _, list := range lists {
		for _, entry := range list.Val() {
			for _, key := range heldEntry(entry) {
				if rest, ok := strings.CutPrefix(key, s.db.Prefix); ok {
					keys[rest] = true
				}
			}
		}
	}
	return keys, nil
}

// heldEntry reads the keys in the output of held_pack in rdb/lua/lib/records.lua.
func heldEntry(entry string) (keys []string) {
	for entry != "" {
		head, body, _ := strings.Cut(entry, "\n")
		k, v, _ := strings.Cut(head, " ")
		key, err1 := strconv.Atoi(k)
		value, err2 := strconv.Atoi(v)
		if err1 != nil || err2 != nil || key < 0 || value < 0 || key > len(body) || value > len(body)-key {
			return keys
		}
		keys = append(keys, body[:key])
		entry = body[key+value:]
	}
	return keys
}
