package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const twoStores = `stores:
  main: {redis_url: "redis://a:1/0", queues: [critical, "mail:2", "!mail_x"], worker_count: 3}
  bulk: {redis_url: "redis://b:2/0", namespace: "{bulk}", queues: ["bulk_*", "mail*"], thread_count: 5}
  far: {redis_url: "redis://c:3/0", routes: ["far_*"]}
worker_count: 2
schedule:
  early: {every: 1m, class: A, queue: mail}
  late: {every: 1m, class: A, queue: bulk_1}
`

func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("all are loaded, in the order of the file", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: twoStores, needQueues: true}.mustLoad(t)
		require.Len(t, r.Stores, 3)
		require.Empty(t, r.RedisURL, "whoever overlooks the stores must reach no server")
		main, bulk, far := r.Stores[0], r.Stores[1], r.Stores[2]
		require.Equal(t, []string{"main", "bulk", "far"}, []string{main.Store, bulk.Store, far.Store})
		require.Equal(t, "redis://a:1/0", main.RedisURL)
		require.Equal(t, []string{"resque", "{bulk}", "resque"}, []string{main.Namespace, bulk.Namespace, far.Namespace})
		require.Equal(t, []int{3, 2, 2}, []int{main.WorkerCount, bulk.WorkerCount, far.WorkerCount})
		require.Equal(t, []int{1, 5, 1}, []int{main.ThreadCount, bulk.ThreadCount, far.ThreadCount})
		require.Equal(t, "critical,mail:2,!mail_x", main.Queues.String())
		require.Empty(t, far.Queues.Patterns)
	})
	t.Run("one is loaded as if it were alone", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: twoStores, env: "RESQUED_STORE=bulk", needQueues: true}.mustLoad(t)
		require.Empty(t, r.Stores)
		require.Equal(t, "bulk", r.Store)
		require.Equal(t, "redis://b:2/0", r.RedisURL)
		require.Equal(t, Source{Kind: FromFile, Name: r.File, Line: 3}, r.Sources["redis_url"])
	})
	t.Run("a queue belongs to the first store that has it", func(t *testing.T) {
		t.Parallel()
		routes := from{yaml: twoStores}.mustLoad(t).Stores[0].Routes
		for queue, store := range map[string]string{
			"critical": "main", "mail": "main", "mail_x": "bulk", "mail_y": "bulk", "bulk_": "bulk", "far_1": "far", "other": "",
		} {
			require.Equal(t, store, RouteOf(routes, queue), queue)
		}
	})
	t.Run("a store keeps the schedules of its queues", func(t *testing.T) {
		t.Parallel()
		r := from{yaml: twoStores}.mustLoad(t)
		for _, one := range r.Stores {
			require.NoError(t, one.KeepSchedules())
		}
		require.Equal(t, "early", r.Stores[0].Schedules[0].Name)
		require.Equal(t, "late", r.Stores[1].Schedules[0].Name)
		require.Len(t, r.Stores[0].Schedules, 1)
		require.Empty(t, r.Stores[2].Schedules)
		homeless := from{yaml: twoStores + "  lost: {every: 1m, class: A, queue: other}\n"}.mustLoad(t)
		require.ErrorContains(t, homeless.Stores[0].KeepSchedules(), `schedule.lost "other"`)
	})
	t.Run("what a store sets wins over the environment, and a flag that names it over both", func(t *testing.T) {
		t.Parallel()
		env := "REDIS_URL=redis://env:1 QUEUES=env WORKER_COUNT=7 THREAD_COUNT=9"
		r := from{yaml: twoStores, env: env}.mustLoad(t)
		require.Equal(t, "redis://a:1/0", r.Stores[0].RedisURL)
		require.Equal(t, "critical,mail:2,!mail_x", r.Stores[0].Queues.String())
		require.Equal(t, []int{3, 7}, []int{r.Stores[0].WorkerCount, r.Stores[1].WorkerCount})
		require.Equal(t, []int{9, 5}, []int{r.Stores[0].ThreadCount, r.Stores[1].ThreadCount})

		one := from{yaml: twoStores, env: env, flags: "--thread-count=4 --store=bulk"}.mustLoad(t)
		require.Equal(t, 4, one.ThreadCount)
	})
	t.Run("a flag that means none of them in particular is refused", func(t *testing.T) {
		t.Parallel()
		_, err := from{yaml: twoStores, flags: "--redis-url=redis://x:secret@h --max-deaths=4"}.load(t)
		require.ErrorContains(t, err, "redis_url")
		require.ErrorContains(t, err, "name one with --store")
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "max_deaths")
	})
	t.Run("two that are one are refused, however their address is written", func(t *testing.T) {
		t.Parallel()
		pair := func(one, other string) error {
			_, err := from{yaml: "stores:\n  a: {redis_url: \"" + one + "\", queues: [a]}\n  b: {redis_url: \"" + other + "\", queues: [b]}\n"}.load(t)
			return err
		}
		for _, other := range []string{
			"redis://h:6379/0", "redis://h:6379", "redis://H/0", "redis://h", "redis://h/", "redis://u:p@h", "redis://:other@h:6379/00",
		} {
			require.ErrorContains(t, pair("redis://h:6379/0", other), "stores.b", other)
		}
		require.ErrorContains(t, pair("redis://localhost", "redis://127.0.0.1:6379"), "stores.b")
		require.ErrorContains(t, pair("redis://[::1]", "redis://[::1]:6379/0"), "stores.b")
		for _, other := range []string{"redis://h/1", "redis://h:6380", "redis://h2", "rediss://h", "redis://h/10", "unix:///h"} {
			require.NoError(t, pair("redis://h:6379/0", other), other)
		}
	})
	t.Run("queues that belong to another store are warned of", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ a, b, crossed string }{
			{`[mail]`, `[mail]`, "mail"},
			{`["*"]`, `["bulk_*"]`, "bulk_*"},
			{`["bulk_*"]`, `["bulk_a*"]`, "bulk_a*"},
			{`["*"]`, `["*"]`, "*"},
			{`["*", "!bulk_*"]`, `["bulk_*"]`, ""},
			{`["bulk_a*"]`, `["bulk_*"]`, ""},
			{`["????????", "[!a]", mail]`, `["*"]`, ""},
			{`["bulk_?"]`, `["bulk_*"]`, ""},
		} {
			r := from{yaml: "stores:\n  a: {queues: " + c.a + "}\n  b: {namespace: b, queues: " + c.b + "}\n"}.mustLoad(t)
			var texts []string
			for _, w := range r.Warnings {
				if w.Key == "stores" {
					texts = append(texts, w.Message)
				}
			}
			if c.crossed == "" {
				require.Empty(t, texts, c)
				continue
			}
			require.Len(t, texts, 1, c)
			require.Contains(t, texts[0], "store b works queue "+c.crossed+", which belongs to store a")
		}
	})
	t.Run("a store that is not there is refused", func(t *testing.T) {
		t.Parallel()
		_, err := from{yaml: twoStores, env: "RESQUED_STORE=bluk"}.load(t)
		require.ErrorContains(t, err, `store "bluk" (environment RESQUED_STORE): there is no such store, one of main, bulk, far`)
		_, err = from{yaml: "queues: [a]", env: "RESQUED_STORE=bluk"}.load(t)
		require.ErrorContains(t, err, "the configuration has no stores")
		_, err = from{yaml: twoStores, env: "RESQUED_STORE=far", needQueues: true}.load(t)
		require.ErrorContains(t, err, "store far has none")
	})
}
