package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
)

// record is a failure as Resque writes it.
func record(at, class, exception, text string) string {
	return `{"failed_at":"` + at + `","payload":{"class":"` + class + `","args":[1]},"exception":"` + exception + `","error":"` + text +
		`","backtrace":["a.rb:1"],"worker":"w","queue":"mail"}`
}

func TestFailures(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		f.do("RPUSH", "failed",
			record("2026/01/01 10:00:00 UTC", "Mail", "Timeout", "slow"),
			record("2026/01/02 10:00:00 UTC", "Post", "Refused", "no"),
			record("2026/01/03 10:00:00 UTC", "Mail", "Timeout", `sh: exit code 1:\nlast words`),
			"no record")

		all, partial, err := view.Failures(ctx, f.store, view.FailureQuery{Limit: 100})
		require.NoError(f, err)
		require.False(f, partial)
		require.Len(f, all, 4)
		require.Equal(f, "(no failure record)", all[0].Exception, "the newest is first")
		newest := all[1]
		require.True(f, strings.HasSuffix(newest.ID, "@2"), newest.ID)
		require.Equal(f, newest.ID[:view.ShortID]+"@2", newest.Name())
		require.Equal(f, "Mail", newest.Class)
		require.Equal(f, json.RawMessage("[1]"), newest.Args)
		require.Equal(f, time.Date(2026, 1, 3, 10, 0, 0, 0, time.UTC), newest.FailedAt.UTC())
		require.Empty(f, newest.Payload, "lists have no detail")
		require.Empty(f, newest.Backtrace)

		some, partial, err := view.Failures(ctx, f.store, view.FailureQuery{Limit: 3, Match: records(f.T, "class", "Post")})
		require.NoError(f, err)
		require.True(f, partial, "one was not looked at")
		require.Len(f, some, 1)
		require.Equal(f, "Refused", some[0].Exception)

		found, err := view.FindFailures(ctx, f.store, []string{newest.Name(), some[0].ID})
		require.NoError(f, err)
		require.Equal(f, newest.ID, found[0].ID)
		require.JSONEq(f, `{"class":"Mail","args":[1]}`, found[0].Payload)
		require.Equal(f, []string{"a.rb:1"}, found[0].Backtrace)
		require.Equal(f, some[0].ID, found[1].ID)
		_, err = view.FindFailures(ctx, f.store, []string{"ffffffffffff"})
		requireNotFound(f.T, err, "failure", "ffffffffffff", newest.Name())

		for i := range 17 { // of so many digests two begin with the same digit
			f.do("RPUSH", "failed", fmt.Sprint(i))
		}
		all, _, err = view.Failures(ctx, f.store, view.FailureQuery{Limit: 100})
		require.NoError(f, err)
		byDigit := map[string][]string{}
		for _, v := range all {
			byDigit[v.ID[:1]] = append(byDigit[v.ID[:1]], v.ID)
		}
		for digit, ids := range byDigit {
			if len(ids) < 2 {
				continue
			}
			_, err = view.FindFailures(ctx, f.store, []string{digit})
			var several *view.AmbiguousError
			require.ErrorAs(f, err, &several)
			require.ElementsMatch(f, ids, several.Matches)
		}
	})
}

func TestGroupFailures(t *testing.T) {
	views(t, func(f *fixture) {
		f.do("SADD", "failed_queues", "mail_failed")
		f.do("RPUSH", "failed",
			record("2026/01/04 10:00:00 UTC", "Mail", "Timeout", "user 7 is away"),
			record("2026/01/01 10:00:00 UTC", "Mail", "Timeout", "user 8 is away"),
			record("2026/01/02 10:00:00 UTC", "Mail", "Timeout", "no such user"),
			record("2026/01/02 10:00:00 UTC", "Post", "Timeout", "user 9 is away"),
			"no record")
		f.do("RPUSH", "mail_failed", record("2026/01/03 10:00:00 UTC", "Mail", "Timeout", "user 1234 is away"))
		all, err := view.GroupFailures(f.Context(), f.store, view.FailureQuery{Limit: 100})
		require.NoError(f, err)
		require.Len(f, all.Groups, 4)
		require.Zero(f, all.Others)
		require.False(f, all.Partial)
		most := all.Groups[0]
		require.Equal(f, 3, most.Count, "the most frequent is first")
		require.Equal(f, "user # is away", most.Pattern)
		require.Equal(f, "user 7 is away", most.Error, "that of the newest, wherever it stands")
		require.Equal(f, 4, most.Last.Day())
		require.Equal(f, 1, most.First.Day())
		found, err := view.FindFailures(f.Context(), f.store, []string{most.Example})
		require.NoError(f, err)
		require.Equal(f, "user 7 is away", found[0].Error)
		some, err := view.GroupFailures(f.Context(), f.store, view.FailureQuery{Limit: 2, Match: records(f.T, "class", "Post")})
		require.NoError(f, err)
		require.Len(f, some.Groups, 1)
		require.True(f, some.Partial)
	})
}

// Messages that nothing masks must not fill the memory.
func TestGroupsOfFailuresAreBounded(t *testing.T) {
	views(t, func(f *fixture) {
		const more = 37
		var records []any
		for i := range 2000 + more {
			word := strings.Map(func(r rune) rune { return r - '0' + 'k' }, fmt.Sprint(i))
			records = append(records, record("2026/01/01 10:00:00 UTC", "Mail", "E", "the word "+word))
		}
		f.do("RPUSH", "failed", records...)
		all, err := view.GroupFailures(f.Context(), f.store, view.FailureQuery{Limit: 10_000})
		require.NoError(f, err)
		require.Len(f, all.Groups, 2000)
		require.Equal(f, more, all.Others)
	})
}

func TestFailuresOfSeveralLists(t *testing.T) {
	views(t, func(f *fixture) {
		f.do("SADD", "failed_queues", "mail_failed")
		f.do("RPUSH", "failed", record("2026/01/01 10:00:00 UTC", "A", "E", ""), record("2026/01/03 10:00:00 UTC", "C", "E", ""))
		f.do("RPUSH", "mail_failed", record("2026/01/02 10:00:00 UTC", "B", "E", ""))
		classes := func(limit int64) (classes string, partial bool) {
			all, partial, err := view.Failures(f.Context(), f.store, view.FailureQuery{Limit: limit})
			require.NoError(f, err)
			for _, v := range all {
				classes += v.Class
			}
			return classes, partial
		}
		got, partial := classes(10)
		require.Equal(f, "CBA", got, "the newest of all lists is first")
		require.False(f, partial)
		got, partial = classes(2)
		require.Equal(f, "CB", got)
		require.True(f, partial)
	})
}
