package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued"
)

func policy(t require.TestingT, r resqued.Retry) *Policy {
	p, err := NewPolicy(r)
	require.NoError(t, err)
	return p
}

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	p := policy(t, resqued.Retry{})
	require.Equal(t, 5, p.Attempts())
	for attempt, limit := range map[int]time.Duration{
		1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 9: 2560 * time.Second, 10: time.Hour, math.MaxInt: time.Hour,
	} {
		require.Equal(t, limit, p.limit(attempt), attempt)
	}
	require.Zero(t, p.Lifetime(time.Minute))
	require.Equal(t, 3*time.Minute, policy(t, resqued.Retry{ExpireAfter: 2 * time.Minute}).Lifetime(time.Minute))
}

// The longest durations there are neither panic nor mean now.
func TestTheLongestWaits(t *testing.T) {
	t.Parallel()
	p := policy(t, resqued.Retry{Max: math.MaxInt64, Attempts: math.MaxInt})
	for _, attempt := range []int{1, 29, 30, 31, 99, math.MaxInt - 1} {
		wait, again := p.Failed(attempt, Failure{})
		require.True(t, again)
		require.GreaterOrEqual(t, wait, time.Duration(0))
	}
	p = policy(t, resqued.Retry{Base: math.MaxInt64, ExpireAfter: time.Second})
	p.random = func(n int64) int64 { return n - 1 }
	wait, again := p.Failed(1, Failure{})
	require.True(t, again)
	require.Greater(t, wait, 290*365*24*time.Hour)
	require.Equal(t, time.Duration(math.MaxInt64), p.Lifetime(wait))
	require.Equal(t, time.Duration(math.MaxInt64), policy(t, resqued.Retry{ExpireAfter: math.MaxInt64 / time.Second * time.Second}).Lifetime(time.Hour))
}

func TestPolicyWaits(t *testing.T) {
	t.Parallel()
	p := policy(t, resqued.Retry{Attempts: 9, Backoff: []time.Duration{0, time.Second, time.Minute}})
	for attempt, want := range map[int]time.Duration{1: 0, 2: time.Second, 3: time.Minute, 4: time.Minute, 8: time.Minute} {
		wait, again := p.Failed(attempt, Failure{})
		require.True(t, again, attempt)
		require.Equal(t, want, wait, attempt)
	}
	_, again := p.Failed(9, Failure{})
	require.False(t, again, "that was the last")
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ counted, deaths, counting, ignoring int }{
		{-1, 0, 1, 1}, {-7, -7, 1, 1}, {0, 0, 2, 2}, {3, 0, 5, 5}, {-1, 2, 3, 1}, {1, 1, 4, 3},
	} {
		require.Equal(t, c.counting, policy(t, resqued.Retry{}).Attempt(c.counted, c.deaths), "%+v", c)
		require.Equal(t, c.ignoring, policy(t, resqued.Retry{IgnoreDeaths: true}).Attempt(c.counted, c.deaths), "%+v", c)
	}
}

type exitError int

func (e exitError) Error() string   { return fmt.Sprint("exit code ", int(e)) }
func (e exitError) ExitStatus() int { return int(e) }

type brokenError struct{}

func (brokenError) Error() string   { return "broken" }
func (brokenError) Is(error) bool   { panic("broken") }
func (brokenError) ExitStatus() int { panic("broken") }

func TestErrors(t *testing.T) {
	t.Parallel()
	timeout := Failure{Err: fmt.Errorf("slow: %w", resqued.ErrTimeout), Exception: "Resqued::Timeout", Message: "ran longer than 2m: killed"}
	exit := Failure{Err: fmt.Errorf("mail: %w", exitError(3)), Exception: "Resqued::CommandFailed", Message: "mail: exit code 3: connection refused"}
	for name, c := range map[string]struct {
		errors resqued.Errors
		yes    []Failure
		no     []Failure
	}{
		"none":        {resqued.Errors{}, nil, []Failure{timeout, exit, {}}},
		"is":          {resqued.Errors{Is: []error{resqued.ErrKilled, resqued.ErrTimeout}}, []Failure{timeout}, []Failure{exit, {Err: brokenError{}}, {}}},
		"exception":   {resqued.Errors{Exceptions: []string{"Resqued::Timeout"}}, []Failure{timeout}, []Failure{exit, {Exception: "Resqued::Timeouts"}}},
		"glob":        {resqued.Errors{Exceptions: []string{"Resqued::*"}}, []Failure{timeout, exit}, []Failure{{Exception: "MyResqued::A"}, {}}},
		"inner globs": {resqued.Errors{Exceptions: []string{"*qued*mm*Fail*"}}, []Failure{exit}, []Failure{timeout}},
		"pointers":    {resqued.Errors{Exceptions: []string{"*net.OpError"}}, []Failure{{Exception: "*net.OpError"}}, []Failure{{Exception: "*net.OpErrors"}}},
		"overlap":     {resqued.Errors{Exceptions: []string{"aba*aba"}}, []Failure{{Exception: "abaaba"}}, []Failure{{Exception: "ababa"}, {Exception: "aba"}}},
		"message":     {resqued.Errors{Messages: []string{`connection (refused|reset)$`}}, []Failure{exit}, []Failure{timeout}},
		"exit code":   {resqued.Errors{ExitCodes: []int{2, 3}}, []Failure{exit}, []Failure{timeout, {Err: exitError(4)}, {Err: brokenError{}}}},
		"func":        {resqued.Errors{Func: func(err error) bool { return errors.As(err, new(exitError)) }}, []Failure{exit}, []Failure{timeout, {}}},
		"panic":       {resqued.Errors{Func: func(error) bool { panic("broken") }}, nil, []Failure{exit}},
		"any of two":  {resqued.Errors{ExitCodes: []int{3}, Is: []error{resqued.ErrTimeout}}, []Failure{exit, timeout}, []Failure{{Err: resqued.ErrKilled}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			only, never := policy(t, resqued.Retry{RetryOn: c.errors}), policy(t, resqued.Retry{NeverOn: c.errors})
			for _, f := range c.yes {
				_, again := only.Failed(1, f)
				require.True(t, again, "only %+v", f)
				_, again = never.Failed(1, f)
				require.False(t, again, "never %+v", f)
			}
			for _, f := range c.no {
				_, again := only.Failed(1, f)
				require.Equal(t, c.errors.IsZero(), again, "only %+v", f)
				_, again = never.Failed(1, f)
				require.True(t, again, "never %+v", f)
			}
		})
	}
	both := policy(t, resqued.Retry{RetryOn: resqued.Errors{ExitCodes: []int{3}}, NeverOn: resqued.Errors{Messages: []string{"refused"}}})
	_, again := both.Failed(1, exit)
	require.False(t, again, "never counts more")

	_, err := NewPolicy(resqued.Retry{RetryOn: resqued.Errors{Messages: []string{"("}}})
	require.ErrorContains(t, err, `message "("`)
	_, err = NewPolicy(resqued.Retry{NeverOn: resqued.Errors{Messages: []string{"["}}})
	require.ErrorContains(t, err, "never on")
}

// A job that always fails runs exactly as often as it may, however its policy looks, and
// no wait is negative or beyond the limit.
func TestPolicyProperties(t *testing.T) {
	t.Parallel()
	span := rapid.Int64Range(0, int64(365*24*time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		r := resqued.Retry{Attempts: rapid.IntRange(1, 40).Draw(t, "attempts"), IgnoreDeaths: rapid.Bool().Draw(t, "ignore deaths")}
		if rapid.Bool().Draw(t, "list") {
			for range rapid.IntRange(1, 5).Draw(t, "waits") {
				r.Backoff = append(r.Backoff, time.Duration(span.Draw(t, "wait")))
			}
		} else {
			r.Base = time.Duration(span.Draw(t, "base"))
			r.Max = r.Base + time.Duration(span.Draw(t, "more"))
		}
		p := policy(t, r)
		dice := rapid.Int64()
		p.random = func(n int64) int64 {
			if n <= 0 {
				t.Fatalf("a wait out of %d", n)
			}
			return (dice.Draw(t, "dice") & math.MaxInt64) % n
		}
		last, runs, deaths := time.Duration(-1), 0, 0
		for counted := -1; ; {
			died := rapid.IntRange(0, 2).Draw(t, "deaths")
			attempt := p.Attempt(counted, died)
			runs, deaths = runs+1, deaths+died
			if want := runs + deaths; !r.IgnoreDeaths && attempt != want || r.IgnoreDeaths && attempt != runs {
				t.Fatalf("attempt %d after %d runs and %d deaths", attempt, runs, deaths)
			}
			wait, again := p.Failed(attempt, Failure{Err: errors.New("no luck")})
			if again != (attempt < p.Attempts()) {
				t.Fatalf("after attempt %d of %d again: %v", attempt, p.Attempts(), again)
			}
			if !again {
				return
			}
			limit := p.limit(attempt)
			if wait < 0 || len(r.Backoff) == 0 && (wait > limit || limit > p.max || limit < last) {
				t.Fatalf("wait %s of at most %s, after one of at most %s", wait, limit, last)
			}
			last, counted = limit, attempt-1
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("Resqued::*", "Resqued::Timeout")
	f.Add("*a*b*", "xaybz")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !glob("*", name) || glob(name, name) != true {
			t.Fatalf("%q does not match itself", name)
		}
		if glob(pattern, name) && !glob("*"+pattern+"*", "x"+name+"y") {
			t.Fatalf("%q matches %q, but not inside of more", pattern, name)
		}
	})
}

// stub is a Redis of counts.
type stub func(keys []string) ([]int, error)

func (s stub) RetryCounts(_ context.Context, keys []string) ([]int, error) { return s(keys) }
