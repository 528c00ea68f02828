//go:build unix

package longjob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/longjob"
)

// worked registers class L, whose slice does the items of the list that lists returns for it.
// It returns the items done so far.
func (b *bed) worked(o longjob.Options, lists func(slice int) []string) *[]string {
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkEach(ctx, r, "e", lists(r.Slice()), func(_ context.Context, s string) error {
			done = append(done, s)
			return nil
		})
	}, o)
	return &done
}

func letters(text string) []string { return strings.Split(text, "") }

func TestListsThatChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lists []string // by slice, with time for two items each; the last list is used for all further slices
		want  string
	}{
		"as before":                             {[]string{"abcde"}, "abcde"},
		"items that are done leave":             {[]string{"abcdefgh", "cdefgh", "efgh", "gh"}, "abcdefgh"},
		"some that are done leave":              {[]string{"abcdefgh", "bcdefgh", "bdefgh", "bdfgh"}, "abcdefgh"},
		"others leave":                          {[]string{"abcdefgh", "abdefgh", "abdeg"}, "abdeg"},
		"all leave":                             {[]string{"abcd", ""}, "ab"},
		"items come in front":                   {[]string{"cde", "abcde"}, "cdabe"},
		"items come between":                    {[]string{"ace", "abcde"}, "acbde"},
		"in another order":                      {[]string{"abcdef", "fedcba", "cabdfe"}, "abfecd"},
		"an item that has left comes back":      {[]string{"abcdef", "bcdef", "abcdef"}, "abcdaef"},
		"another list":                          {[]string{"abcd", "efgh"}, "abefgh"},
		"equal items":                           {[]string{"aabab"}, "aabab"},
		"equal items that are done leave":       {[]string{"aaab", "ab"}, "aaab"},
		"one of equal items that is done stays": {[]string{"aaab", "aab"}, "aaab"},
		"more equal items come":                 {[]string{"aab", "aaaab"}, "aaaab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			done := b.worked(longjob.Options{Queue: "q", MaxUnits: 2}, func(slice int) []string {
				list := c.lists[min(slice, len(c.lists))-1]
				return slices.DeleteFunc(letters(list), func(s string) bool { return s == "" })
			})
			uuid := b.enqueue("L", nil)
			b.work("q")
			require.Equal(t, c.want, strings.Join(*done, ""))
			run := b.run(uuid)
			require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
			require.EqualValues(t, len(c.want), run.Steps[0].Done)
			require.Equal(t, run.Steps[0].Done, run.Steps[0].Total)
		})
	}
}

// A list of pending items that shrinks as they are done: 100 items, of which a slice has time
// for 7.
func TestAListOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var left []int
	for i := range 100 {
		left = append(left, i)
	}
	times := map[int]int{}
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkEach(ctx, r, "e", slices.Clone(left), func(_ context.Context, i int) error {
			times[i]++
			left = slices.DeleteFunc(left, func(j int) bool { return i == j })
			return nil
		})
	}, longjob.Options{Queue: "q", MaxUnits: 7})
	uuid := b.enqueue("L", nil)
	b.work("q")
	run := b.run(uuid)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	require.Empty(t, left)
	for i := range 100 {
		require.Equal(t, 1, times[i], i)
	}
	require.EqualValues(t, 100, run.Steps[0].Done)
	require.EqualValues(t, 100, run.Steps[0].Total)
	require.Empty(t, run.Warning)
}

// Items whose JSON changes as they are processed are never recognized again, which causes a
// warning.
func TestItemsThatChange(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.worked(longjob.Options{Queue: "q", MaxUnits: 2}, func(slice int) []string {
		if slice == 4 {
			return nil
		}
		return []string{fmt.Sprint("a", slice), fmt.Sprint("b", slice), fmt.Sprint("c", slice)}
	})
	uuid := b.enqueue("L", nil)
	b.work("q")
	require.Contains(t, b.run(uuid).Warning, "pass items whose JSON does not change")
}

// The steps within an item stay with the item, wherever it is in the list.
func TestStepsWithinItemsThatMove(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	lists := [][]string{{"b", "c"}, {"a", "b", "c"}, {"a", "b", "c"}, {"a", "b", "c"}, {"c", "d"}, {"b", "c", "d"}}
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkEach(ctx, r, "e", lists[min(r.Slice(), len(lists))-1], func(ctx context.Context, s string) error {
			for _, key := range []string{"1", "2"} {
				if err := r.WorkOnce(ctx, key, func(context.Context) error { done = append(done, s+key); return nil }); err != nil {
					return err
				}
			}
			return nil
		})
	}, longjob.Options{Queue: "q", MaxUnits: 1})
	uuid := b.enqueue("L", nil)
	b.work("q")
	// b1 was done; then a came in front of it. In the fourth slice b2 was done; b left, and came back.
	require.Equal(t, "b1 a1 a2 b2 c1 b1 b2 c2 d1 d2", strings.Join(done, " "))
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
}

func TestLongListsThatChange(t *testing.T) {
	t.Parallel()
	const n, each = 20_100, 20_050
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("item ", i)
	}
	o := longjob.Options{Queue: "q", MaxUnits: each, SaveEvery: time.Hour, Slice: time.Hour, Retries: -1}
	for name, c := range map[string]struct {
		second []string
		done   int
		fails  bool
		warns  string
	}{
		"as before":                             {all, n, false, ""},
		"longer":                                {append(slices.Clone(all), "one more"), n + 1, false, ""},
		"what is done has left":                 {all[each:], n, false, "has begun again at the front"},
		"something in front has come":           {append([]string{"new"}, all...), each, true, ""},
		"something in front has left":           {all[1:], each, true, ""},
		"with what is done it has become short": {all[:each+5], each + 5, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			done := b.worked(o, func(slice int) []string {
				if slice == 1 {
					return all
				}
				return c.second
			})
			uuid := b.enqueue("L", nil)
			b.work("q")
			run := b.run(uuid)
			require.Len(t, *done, c.done)
			if c.fails {
				require.Equal(t, longjob.StatusFailed, run.Status)
				require.Contains(t, run.Error, "WorkAfter")
			} else {
				require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
			}
			require.Contains(t, run.Warning, c.warns)
		})
	}
}

// Remembered items are dropped if the program's own state needs the space.
func TestItemsMakeRoomForTheState(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	list := letters("abcdefghijklmnopqrstuvwxyz")
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkEach(ctx, r, "e", list, func(_ context.Context, s string) error {
			done = append(done, s)
			if s == "m" {
				return longjob.SetState(r, "much", strings.Repeat("x", 650))
			}
			return nil
		})
	}, longjob.Options{Queue: "q", MaxUnits: 5, StateLimit: 900})
	uuid := b.enqueue("L", nil)
	b.work("q")
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status, b.run(uuid).Error)
	require.Equal(t, list, done)
}

// Places of steps count as state.
func TestPlacesAreState(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pages := 0
	longjob.Register(b.h, "Pages", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkPages(ctx, r, "p", func(context.Context, string) (longjob.Page[string], error) {
			pages++
			return longjob.Page[string]{Next: strings.Repeat("x", 2000), Last: pages == 3}, nil
		})
	}, longjob.Options{Queue: "q", StateLimit: 1000, Retries: -1})
	longjob.Register(b.h, "Onces", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		for i := range 1000 {
			if err := r.WorkOnce(ctx, fmt.Sprint("step", i), func(context.Context) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}, longjob.Options{Queue: "q", StateLimit: 1000, Retries: -1})
	for _, class := range []string{"Pages", "Onces"} {
		uuid := b.enqueue(class, nil)
		b.work("q")
		run := b.run(uuid)
		require.Equal(t, longjob.StatusFailed, run.Status, class)
		require.Contains(t, run.Error, "the limit is 1000", class)
	}
}

// An iterator or a channel that yields other items than before is an error, not the end of the
// step.
func TestSequencesThatChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second string
		fails  bool
	}{
		"as before": {"abcd", false}, "longer": {"abcdef", false}, "shorter behind": {"abc", false},
		"done ones have left": {"cdef", true}, "one has left": {"bcdef", true}, "too few": {"a", true}, "one has come": {"xabcd", true}, "in another order": {"bacd", true},
	} {
		for _, channel := range []bool{false, true} {
			t.Run(fmt.Sprint(name, channel), func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				var done []string
				longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
					list := letters("abcd")
					if r.Slice() > 1 {
						list = letters(c.second)
					}
					note := func(_ context.Context, s string) error { done = append(done, s); return nil }
					if !channel {
						return longjob.WorkSeq(ctx, r, "s", 0, slices.Values(list), note)
					}
					items := make(chan string, len(list))
					for _, s := range list {
						items <- s
					}
					close(items)
					return longjob.WorkChan(ctx, r, "s", 0, items, note)
				}, longjob.Options{Queue: "q", MaxUnits: 2, Retries: -1})
				uuid := b.enqueue("L", nil)
				b.work("q")
				run := b.run(uuid)
				if c.fails {
					require.Equal(t, longjob.StatusFailed, run.Status)
					require.Contains(t, run.Error, longjob.ErrListChanged.Error())
					require.Equal(t, []string{"a", "b"}, done)
				} else {
					require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
					require.Equal(t, letters(c.second), done)
				}
			})
		}
	}
}

func TestTreesThatChange(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	trees := []map[string]any{
		{"b": map[string]any{"x": 1, "y": 2}, "c": 3},
		{"a": 0, "b": map[string]any{"w": 0, "x": 1, "y": 2}, "c": 3},
		{"a": 0, "b": map[string]any{"w": 0, "y": 2}, "c": 3},
		{"a": 0, "b": map[string]any{"w": 0, "y": 2}, "c": 3, "0": map[string]any{"x": 1}},
	}
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkTree(ctx, r, "t", trees[min(r.Slice(), 4)-1], func(_ context.Context, path []string, leaf any) error {
			done = append(done, fmt.Sprint(strings.Join(path, "/"), "=", leaf))
			return nil
		})
	}, longjob.Options{Queue: "q", MaxUnits: 2})
	uuid := b.enqueue("L", nil)
	b.work("q")
	require.Equal(t, "b/x=1 b/y=2 a=0 b/w=0 c=3", strings.Join(done, " "))
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
}

// The name of one step may be a prefix of another's.
func TestNamesOfSteps(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		note := func(what string) func(context.Context) error {
			return func(context.Context) error { done = append(done, what); return nil }
		}
		if err := r.WorkOnce(ctx, "sync/users", note("sync/users")); err != nil {
			return err
		}
		if err := longjob.WorkEach(ctx, r, "sync#0/x", []int{1}, func(ctx context.Context, _ int) error { return note("sync#0/x")(ctx) }); err != nil {
			return err
		}
		err := longjob.WorkEach(ctx, r, "sync", []int{1, 2}, func(ctx context.Context, i int) error {
			return r.WorkOnce(ctx, "x", note(fmt.Sprint("sync ", i)))
		})
		if err != nil {
			return err
		}
		err = r.WorkOnce(ctx, "once", func(ctx context.Context) error { return r.WorkOnce(ctx, "users", note("users within once")) })
		if err != nil {
			return err
		}
		return r.WorkOnce(ctx, "once/users", note("once/users"))
	}, longjob.Options{Queue: "q", MaxUnits: 1})
	uuid := b.enqueue("L", nil)
	b.work("q")
	require.Equal(t, []string{"sync/users", "sync#0/x", "sync 1", "sync 2", "users within once", "once/users"}, done)
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)

	longjob.Register(b.h, "Zero", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return r.WorkOnce(ctx, "a\x00b", func(context.Context) error { return nil })
	}, longjob.Options{Queue: "q", Retries: -1})
	uuid = b.enqueue("Zero", nil)
	b.work("q")
	require.Contains(t, b.run(uuid).Error, "zero byte")
}

// A run begun by an earlier version continues where that version was.
func TestPlacesOfOlderVersions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ place, list, want string }{
		"as before":           {`{"n":2,"last":"%s"}`, "abcd", "cd"},
		"done ones have left": {`{"n":2,"last":"%s"}`, "cd", "cd"},
		"some have left":      {`{"n":2,"last":"%s"}`, "bcd", "bcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			done := b.worked(longjob.Options{Queue: "q", MaxUnits: 1}, func(int) []string { return letters(c.list) })
			uuid := b.enqueue("L", nil)
			require.NoError(t, b.redis.HSet(t.Context(), b.ns+":resqued:longjob:state:"+uuid, "o:e", fmt.Sprintf(c.place, "c100f95c1913f9c7")).Err())
			b.work("q")
			require.Equal(t, c.want, strings.Join(*done, ""))
		})
	}
	b := newBed(t)
	var done []string
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return longjob.WorkTree(ctx, r, "t", map[string]any{"a": 1, "b": 2, "c": 3}, func(_ context.Context, path []string, _ any) error {
			done = append(done, path[0])
			return nil
		})
	}, longjob.Options{Queue: "q", MaxUnits: 1})
	uuid := b.enqueue("L", nil)
	require.NoError(t, b.redis.HSet(t.Context(), b.ns+":resqued:longjob:state:"+uuid, "o:t", `{"n":1,"value":["a"]}`).Err())
	b.work("q")
	require.Equal(t, []string{"b", "c"}, done)
}

// TestEachModel runs WorkEach on a list that changes between its slices, while its function
// fails and its processes die. In the end each item in the list was done. Items that were in
// the list all the time were done once, unless the function failed or its process died with
// them.
func TestEachModel(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var call func(ctx context.Context, r *longjob.Runner) error
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error { return call(ctx, r) },
		longjob.Options{Queue: "q", MaxUnits: 3, Retries: 1000, RetryAfter: time.Nanosecond, MaxDeaths: 1000})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		list := &changing{t: t, equal: rapid.IntRange(0, 3).Draw(t, "equal") == 0}
		list.items = list.some(t, rapid.IntRange(0, 12).Draw(t, "items"))
		var k *taken
		slices, last := 0, []*thing(nil)
		call = func(ctx context.Context, r *longjob.Runner) error {
			slices++
			last = append([]*thing(nil), list.items...)
			values := make([]string, len(last))
			for i, it := range last {
				values[i] = it.value
			}
			return longjob.WorkEach(ctx, r, "e", values, func(_ context.Context, value string) error {
				if rapid.IntRange(0, 15).Draw(t, "fails") == 0 {
					return errors.New("no")
				}
				// With equal items a death may merge two changes, in which some leave and
				// others come: these cannot be told apart.
				if !list.equal && rapid.IntRange(0, 31).Draw(t, "dies") == 0 {
					k.die()
					k = nil
					return errors.New("dead")
				}
				list.did(value)
				return nil
			})
		}
		res, err := b.Enqueue(context.Background(), "L", n)
		must(t, err)
		for range 200 {
			if k = b.take("q"); k == nil {
				_, err := b.store.MoveDue(context.Background(), "", nil)
				must(t, err)
				continue
			}
			if result := k.perform(); k != nil {
				k.complete(result)
			}
			run, err := b.Get(context.Background(), res.UUID)
			must(t, err)
			if run.Status == longjob.StatusCompleted {
				break
			}
			if run.Status.Over() {
				t.Fatalf("the run is %s: %s", run.Status, run.Error)
			}
			if slices < 30 { // then it comes to its end
				list.change(t)
			}
		}
		run, err := b.Get(context.Background(), res.UUID)
		must(t, err)
		if run.Status != longjob.StatusCompleted {
			t.Fatalf("the run is %s after %d slices", run.Status, slices)
		}
		list.check(t, last)
	})
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// thing is an item of a list; equal items have the same value.
type thing struct {
	value string
	done  bool
}

// changing is a list that changes.
type changing struct {
	t     *rapid.T
	equal bool
	next  int
	items []*thing
	calls map[string]int // how often each value was processed
}

// some returns new items. They equal existing ones only in lists that may have equal items, and
// never items that change at the same moment.
func (c *changing) some(t *rapid.T, n int) (list []*thing) {
	for range n {
		c.next++
		value := fmt.Sprint("v", c.next)
		if c.equal {
			value = fmt.Sprint("v", rapid.IntRange(0, 3).Draw(t, "value"))
		}
		list = append(list, &thing{value: value})
	}
	return list
}

// did notes that a value was processed: the first thing with it is done.
func (c *changing) did(value string) {
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[value]++
	for _, it := range c.items {
		if it.value == value && !it.done {
			it.done = true
			return
		}
	}
}

func (c *changing) change(t *rapid.T) {
	touched := map[string]bool{} // values that leave
	switch rapid.SampledFrom([]string{"", "done ones leave", "some leave", "shuffled", "reversed"}).Draw(t, "change") {
	case "done ones leave":
		c.leave(t, touched, func(it *thing) bool { return it.done })
	case "some leave":
		// Of equal items the done ones leave first: they cannot be told apart.
		c.leave(t, touched, func(it *thing) bool { return it.done || !c.equal })
	case "shuffled":
		c.items = rapid.Permutation(c.items).Draw(t, "order")
	case "reversed":
		slices.Reverse(c.items)
	}
	for range rapid.IntRange(0, 2).Draw(t, "come") {
		for _, it := range c.some(t, 1) {
			if touched[it.value] {
				continue
			}
			at := rapid.IntRange(0, len(c.items)).Draw(t, "at")
			c.items = slices.Insert(c.items, at, it)
		}
	}
}

func (c *changing) leave(t *rapid.T, touched map[string]bool, may func(it *thing) bool) {
	c.items = slices.DeleteFunc(c.items, func(it *thing) bool {
		if may(it) && rapid.Bool().Draw(t, "leaves") {
			touched[it.value] = true
			return true
		}
		return false
	})
}

// check runs at the end. last is the list of the last slice.
func (c *changing) check(t *rapid.T, last []*thing) {
	for _, it := range last {
		if !it.done {
			t.Fatalf("%s was not done", it.value)
		}
	}
	if c.equal {
		return
	}
	for value, n := range c.calls {
		if n != 1 {
			t.Fatalf("%s was done %d times", value, n)
		}
	}
}
