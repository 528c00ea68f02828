package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestOrders(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		master := store.MasterInfo{ID: "m", Fields: map[string]string{"state": "running", store.FieldOrders: "1"}, TTL: time.Minute}
		put := func(f *fixture, m store.MasterInfo) []store.Order {
			f.t.Helper()
			orders, err := f.PutMaster(f.t.Context(), m)
			require.NoError(f.t, err)
			return orders
		}
		ask := func(f *fixture, want string) string {
			f.t.Helper()
			id, outcome, err := f.RequestOrder(f.t.Context(), "m", store.OrderDrain, "p q")
			require.NoError(f.t, err)
			require.Equal(f.t, want, outcome)
			return id
		}
		t.Run("taken once, and answered", func(t *testing.T) {
			f := setup(t, server)
			require.Empty(t, put(f, master))
			id := ask(f, store.OrderAsked)
			answer, there, err := f.OrderAnswered(t.Context(), "m", id)
			require.NoError(t, err)
			require.Nil(t, answer)
			require.True(t, there)
			require.Equal(t, []store.Order{{ID: id, Verb: store.OrderDrain, Proc: "p q"}}, put(f, master))
			require.Empty(t, put(f, master))
			done := master
			done.Answers = map[string]store.OrderAnswer{id: {Text: "it is draining"}, "other": {Done: true, Text: "paused"}}
			require.Empty(t, put(f, done))
			answer, _, err = f.OrderAnswered(t.Context(), "m", id)
			require.NoError(t, err)
			require.Equal(t, &store.OrderAnswer{Text: "it is draining"}, answer)
			require.Positive(t, f.redis.PTTL(t.Context(), f.key("resqued:ordered:m")).Val())
			_, err = f.DropMaster(t.Context(), "m")
			require.NoError(t, err)
			_, there, err = f.OrderAnswered(t.Context(), "m", "other")
			require.NoError(t, err)
			require.False(t, there)
		})
		t.Run("masters that are gone, or too old", func(t *testing.T) {
			f := setup(t, server)
			ask(f, store.OrderGone)
			put(f, store.MasterInfo{ID: "m", Fields: map[string]string{"state": "running"}, TTL: time.Minute})
			ask(f, store.OrderOld)
			require.False(t, f.exists("resqued:orders:m"))
		})
		t.Run("an order of more than a minute ago is dropped", func(t *testing.T) {
			f := setup(t, server)
			put(f, master)
			now, err := f.Now(t.Context())
			require.NoError(t, err)
			f.redis.HSet(t.Context(), f.key("resqued:orders:m"), "old", fmt.Sprintf("%d drain ", now.Add(-61*time.Second).UnixMilli()), "junk", "junk")
			id := ask(f, store.OrderAsked)
			orders := put(f, master)
			require.Len(t, orders, 1)
			require.Equal(t, id, orders[0].ID)
			require.False(t, f.exists("resqued:orders:m"))
		})
		t.Run("in the order in which they were given, however Redis keeps them", func(t *testing.T) {
			f := setup(t, server)
			put(f, master)
			now, err := f.Now(t.Context())
			require.NoError(t, err)
			const n = 20
			var want []string
			for i := range n {
				// A text of this length makes Redis keep the hash in no order.
				f.redis.HSet(t.Context(), f.key("resqued:orders:m"), i, fmt.Sprintf("%d pause %0100d", now.Add(time.Duration(i-n)*time.Second).UnixMilli(), i))
				want = append(want, fmt.Sprint(i))
			}
			var got []string
			for _, o := range put(f, master) {
				got = append(got, o.ID)
			}
			require.Equal(t, want, got)
		})
		t.Run("keys of another type", func(t *testing.T) {
			f := setup(t, server)
			put(f, master)
			f.redis.Set(t.Context(), f.key("resqued:orders:m"), "text", 0)
			f.redis.Set(t.Context(), f.key("resqued:ordered:m"), "text", 0)
			_, _, err := f.RequestOrder(t.Context(), "m", store.OrderPause, "")
			require.ErrorContains(t, err, "RESQUEDTYPE")
			m := master
			m.Answers = map[string]store.OrderAnswer{"x": {}}
			require.Empty(t, put(f, m), "the master is shown all the same")
		})
	})
}
