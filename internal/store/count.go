package store

import (
	"context"
	"fmt"
	"strconv"
)

// before puts the count in front of a failure record; counted in lua/exchange_finish.lua reads it.
func (c *Count) before(record []byte) []byte {
	b := strconv.AppendInt(nil, int64(len(c.Key)), 10)
	b = strconv.AppendInt(append(b, ' '), int64(max(c.Value, 0)), 10)
	b = strconv.AppendInt(append(b, ' '), seconds(c.Lifetime), 10)
	b = append(append(b, '\n'), c.Key...)
	return append(b, record...)
}

// RetryCounts returns the counts of attempts under keys without the namespace: the number of a job's last run,
// from 0, or -1 without a valid count.
func (s *Store) RetryCounts(ctx context.Context, keys []string) ([]int, error) {
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = s.db.Key(key)
	}
	values, err := s.db.Read.MGet(ctx, full...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the counts of attempts: %w", err)
	}
	counts := make([]int, len(keys))
	for i := range counts {
		counts[i] = -1
		if text, ok := values[i].(string); ok {
			if n, err := strconv.ParseInt(text, 10, 31); err == nil && n >= 0 {
				counts[i] = int(n)
			}
		}
	}
	return counts, nil
}
