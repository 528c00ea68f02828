package locker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Extend renews the leases of many locks in one statement, for rows that are still held by
// their LockedBy. lost has the indexes of the other rows. After an error Extend may be called
// again.
//
// It is for programs that renew their locks themselves. Run renews its own.
func Extend[D DB](ctx context.Context, db D, table string, lockFor time.Duration, rows []Row) (lost []int, err error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return nil, err
	}
	if lockFor <= 0 {
		return nil, fmt.Errorf("locker: extend: lockFor %s must be greater than 0", lockFor)
	}
	if lockFor > MaxLockFor {
		return nil, fmt.Errorf("locker: extend: lockFor %s is longer than %s", lockFor, MaxLockFor)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	// As JSON, because every driver writes arrays differently. Each name occurs once, because
	// the server updates a row once and answers for only one of its duplicates.
	var names [][2]string
	of := make([]int, len(rows))
	seen := map[[2]string]int{}
	for i, r := range rows {
		if r.LockedBy == "" {
			return nil, errors.New("locker: extend: a row names no holder")
		}
		name := [2]string{r.Key, r.LockedBy}
		n, ok := seen[name]
		if !ok {
			n = len(names)
			seen[name], names = n, append(names, name)
		}
		of[i] = n
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("locker: extend: %w", err)
	}
	statement := fmt.Sprintf(`WITH held AS (
			UPDATE %[1]s AS l SET locked_until = %[2]s + $2::float8 * interval '1 second'
			FROM json_array_elements($1::json) WITH ORDINALITY AS want(who, n)
			WHERE l.key = want.who->>0 AND l.locked_by = want.who->>1
			RETURNING want.n, %[3]s AS durable, %[4]s AS over)
		SELECT n - 1, durable FROM held`, name, now, durable, over)
	held := make([]bool, len(names))
	err = again(func() error {
		clear(held)
		return d.rows(ctx, statement, []any{string(list), lockFor.Seconds()}, func(scan func(...any) error) error {
			var n int
			var durable *string
			if err := scan(&n, &durable); err != nil {
				return err
			}
			held[n] = true
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("locker: extend: %w", explain(err, table))
	}
	for i, n := range of {
		if !held[n] {
			lost = append(lost, i)
		}
	}
	return lost, nil
}
