//go:build unix

package longjob_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

// A job whose only argument is a UUID may be a slice, a run of another program, or have that
// UUID for an argument.
func TestJobsWithAUUID(t *testing.T) {
	t.Parallel()
	const unknown = "5c2ff4b4-9a3f-4d8c-8a55-0c5f5a3f9d11"
	setup := func(t *testing.T, uuids bool) (b *bed, ran *[]string, push func(payload string) error) {
		t.Helper()
		b, ran = newBed(t), new([]string)
		for _, class := range []string{"A", "B"} {
			longjob.Register(b.h, class, func(_ context.Context, _ *longjob.Runner, arg string) error {
				*ran = append(*ran, class+" "+arg)
				return nil
			}, longjob.Options{Queue: "q" + class, UUIDArgument: uuids})
		}
		require.NoError(t, b.redis.SAdd(t.Context(), b.ns+":queues", "in").Err())
		return b, ran, func(payload string) error {
			require.NoError(t, b.redis.RPush(t.Context(), b.ns+":queue:in", payload).Err())
			k := b.take("in")
			err := k.perform()
			k.complete(err)
			return err
		}
	}
	list := func(t *testing.T, b *bed) []longjob.Run {
		t.Helper()
		runs, err := b.List(t.Context(), longjob.Filter{})
		require.NoError(t, err)
		return runs
	}

	for name, payload := range map[string]string{
		"bare":        `{"class":"A","args":["` + unknown + `"]}`,
		"of the fork": `{"class":"A","args":["` + unknown + `"],"id":"6f1c0f6be0be4c1d8f1ab1f6b9a0c7d2","generation":1}`,
	} {
		t.Run("a run of another program fails, "+name, func(t *testing.T) {
			t.Parallel()
			b, ran, push := setup(t, false)
			err := push(payload)
			require.ErrorContains(t, err, "the only argument is the UUID "+unknown)
			require.ErrorContains(t, err, "Files.com fork")
			require.NotErrorIs(t, err, resqued.Discard)
			require.Empty(t, list(t, b))
			b.work("qA")
			require.Empty(t, *ran)
			require.Len(t, b.redis.LRange(t.Context(), b.ns+":failed", 0, -1).Val(), 1)
		})
	}

	t.Run("an argument, where that is said", func(t *testing.T) {
		t.Parallel()
		b, ran, push := setup(t, true)
		require.ErrorIs(t, push(`{"class":"A","args":["`+unknown+`"],"id":"`+unknown+`.2"}`), resqued.Discard)
		require.Empty(t, list(t, b), "it names a slice, whose run is gone")
		require.NoError(t, push(`{"class":"A","args":["`+unknown+`"]}`))
		b.work("qA")
		require.Equal(t, []string{"A " + unknown}, *ran)
	})

	t.Run("a run of another class is an argument", func(t *testing.T) {
		t.Parallel()
		b, ran, push := setup(t, false)
		a := b.enqueue("A", "a")
		require.NoError(t, push(`{"class":"B","args":["`+a+`"]}`))
		require.Equal(t, longjob.StatusQueued, b.run(a).Status, "it was not begun")
		b.work("qA", "qB")
		require.ElementsMatch(t, []string{"A a", "B " + a}, *ran)
		require.Equal(t, longjob.StatusCompleted, b.run(a).Status)
		require.NoError(t, push(`{"class":"B","args":["`+a+`"],"id":"x"}`))
		b.work("qB")
		require.Len(t, *ran, 3, "also when it is over")
	})

	for _, uuids := range []bool{false, true} {
		t.Run(fmt.Sprintf("a run of its class is its next slice, or over, %v", uuids), func(t *testing.T) {
			t.Parallel()
			b, ran, push := setup(t, uuids)
			a := b.enqueue("A", "a")
			payload := `{"class":"A","args":["` + a + `"]}`
			require.NoError(t, push(payload))
			require.Equal(t, []string{"A a"}, *ran)
			require.Equal(t, longjob.StatusCompleted, b.run(a).Status)
			require.Equal(t, 1, b.work("qA"), "the slice itself comes to nothing")
			require.Len(t, *ran, 1)
			err := push(payload)
			if uuids {
				require.NoError(t, err)
				b.work("qA")
				require.Equal(t, []string{"A a", "A " + a}, *ran)
				return
			}
			require.ErrorContains(t, err, "that run is over")
			require.Len(t, list(t, b), 1)
		})
	}
}
