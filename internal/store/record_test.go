package store_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	got, err := store.ParseRecord("7", "3 1 2 4 0 12 3 2 1700000000123 -\nqw1lock{}\n x")
	require.NoError(t, err)
	require.Equal(t, store.Reserved{
		Token: "7", Queue: "q", Worker: "w1", LockKey: "lock", Payload: []byte("{}\n x"),
		Fence: 12, Deaths: 3, Blame: 2, StartedAt: time.UnixMilli(1700000000123),
	}, got)

	got, err = store.ParseRecord("8", "3 1 1 0 1 999999999999999999 0 0 0 1700000000\nqwm")
	require.NoError(t, err)
	require.Equal(t, store.Reserved{
		Token: "8", Queue: "q", Worker: "w", Payload: []byte{}, Fence: 999999999999999999, Capped: true,
		StartedAt: time.UnixMilli(0), Unique: true, EnqueuedAt: time.Unix(1700000000, 0),
	}, got)

	for _, start := range []string{"0", "253402300800", "--", "99999999999999999999"} {
		got, err = store.ParseRecord("8", "3 1 1 0 1 5 0 0 0 "+start+"\nqwm")
		require.NoError(t, err, start)
		require.True(t, got.Unique)
		require.True(t, got.EnqueuedAt.IsZero(), start)
	}
}

func TestStrangeRecordsAreRefused(t *testing.T) {
	t.Parallel()
	for _, record := range []string{
		"", "\n", "3", "3 ", "3\n", "3 1 1 0 0 5 0 0 0 -", // no body
		"2 1 1 0 0 5 0 0 0 -\nqw", "31 1 1 0 0 5 0 0 0 -\nqw",
		"3 1 1 0 0 5 0 0 -\nqw", "3 1 1 0 0 5 0 0 0\nqw", "3 1 1 0 0 5 0 0 0 \nqw", "3 1 1 0 0 5 0 0 0 0 -\nqw",
		"3 2 1 0 0 5 0 0 0 -\nqw", "3 1 2 0 0 5 0 0 0 -\nqw", "3 1 1 1 0 5 0 0 0 -\nqw", "3 1 1 0 1 5 0 0 0 -\nqw",
		"3 -1 1 0 0 5 0 0 0 -\nqw", "3 +1 1 0 0 5 0 0 0 -\nqw", "3 x 1 0 0 5 0 0 0 -\nqw", "3  1 0 0 5 0 0 0 -\nqw",
		"3 1 1 0 0 1152921504606846976 0 0 0 -\nqw",
		"3 999999999999999999 999999999999999999 999999999999999999 999999999999999999 5 0 0 0 -\nqw",
		"3 1 1 0 0 " + strings.Repeat("5", 100),
	} {
		_, err := store.ParseRecord("7", record)
		require.ErrorContains(t, err, `in-flight record "7": not a record of resqued`, "%q", record)
	}
}

// FuzzRecord reads what anybody may have written into a record's place: whatever is
// accepted must be what it says, part for part.
func FuzzRecord(f *testing.F) {
	for _, record := range []string{
		"3 1 2 4 0 12 3 2 1700000000123 -\nqw1lock{}\n x", "3 1 1 0 1 999999999999999999 0 0 0 1700000000\nqwm",
		"3 0 0 0 0 0 0 0 0 -\n", "3 999999999999999999 1 0 0 5 0 0 0 -\nqw", "3 1 1 0 0 5 0 0 0 -\n\x00\xff\x00\n",
		"3 00 0 0 0 0 0 0 0 -\n", "3 1 1 0 0 5 0 0 0 -", "",
	} {
		f.Add(record)
	}
	// An opinion of its own about what a record is.
	head := regexp.MustCompile(`^3 (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18}) ([^ \n]+)\n`)
	f.Fuzz(func(t *testing.T, record string) {
		got, err := store.ParseRecord("7", record)
		found := head.FindStringSubmatch(record)
		var n [8]int
		size := 0
		for i := range n {
			if found == nil {
				break
			}
			n[i], _ = strconv.Atoi(found[i+1])
			if i < 4 {
				size = min(size+n[i], len(record)+1)
			}
		}
		if found == nil || size > len(record)-len(found[0]) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		cut := len(record) - len(found[0]) - size - len(got.Payload)
		require.Zero(t, cut)
		require.Equal(t, fmt.Sprint(n[0], n[1], n[2]), fmt.Sprint(len(got.Queue), len(got.Worker), len(got.LockKey)))
		body := record[len(found[0]):]
		require.Equal(t, body[:n[0]+n[1]+n[2]]+body[size:], got.Queue+got.Worker+got.LockKey+string(got.Payload))
		require.Equal(t, n[3] > 0, got.Capped)
		require.Equal(t, []int64{int64(n[4]), int64(n[7])}, []int64{got.Fence, got.StartedAt.UnixMilli()})
		require.Equal(t, []int{n[5], n[6]}, []int{got.Deaths, got.Blame})
		require.Equal(t, found[9] != "-", got.Unique)
	})
}
