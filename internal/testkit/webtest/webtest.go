// Package webtest gives tests a server of the dashboard over a Redis with one thing of each kind.
package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/longjob"
)

// Fixture is a server of the dashboard with a namespace of its own.
type Fixture struct {
	*testing.T
	// Namespace is the namespace of its keys in Redis.
	Namespace string
	Store     *store.Store
	Jobs      *client.Client
	Server    *web.Server
	// Options are the server's.
	Options web.Options
	// Do executes a command on a key of the namespace.
	Do    func(command, key string, args ...any)
	Redis *redis.Client
}

// Proc and Master are the ids that Fill registers.
const (
	Proc   = "web-1:boot:9120-1:0.1"
	Master = "web-1:boot:9120-1"
)

// Setup returns a server over the shared Redis. Its visitor is an operator unless change says otherwise.
func Setup(t *testing.T, change ...func(*web.Options)) *Fixture {
	t.Helper()
	return SetupOn(t, redistest.Shared(t), change...)
}

// SetupOn is Setup with a Redis of the test.
func SetupOn(t *testing.T, server *redistest.Server, change ...func(*web.Options)) *Fixture {
	t.Helper()
	f := &Fixture{T: t, Namespace: redistest.Namespace(t)}
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: f.Namespace, Lease: time.Hour, LockTTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	jobs, err := client.New(client.Options{URL: server.URL(), Namespace: f.Namespace})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, jobs.Close()) })
	redis := server.Client(t)
	f.Store, f.Jobs, f.Redis = s, jobs, redis
	f.Do = func(command, key string, args ...any) {
		t.Helper()
		require.NoError(t, redis.Do(context.Background(), append([]any{command, f.Namespace + ":" + key}, args...)...).Err())
	}
	o := web.Options{
		Store: s, Jobs: jobs, Namespace: f.Namespace, Version: "test",
		Long: func(ctx context.Context) *longjob.Client {
			return longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), resqued.New())
		},
		Who:    func(*http.Request) (web.Visitor, error) { return web.Visitor{Name: "ann", Role: web.Operator}, nil },
		Checks: view.Checks{Unique: func(string) bool { return false }},
	}
	for _, c := range change {
		c(&o)
	}
	f.Server, f.Options = web.New(o), o
	return f
}

// Fill puts one thing of each kind into Redis, called name where possible.
func (f *Fixture) Fill(name string) {
	f.Helper()
	quoted, err := json.Marshal(strings.ToValidUTF8(name, "?"))
	require.NoError(f, err)
	payload := fmt.Sprintf(`{"class":%s,"args":[%[1]s,12345678901234567890,0.10]}`, quoted)
	for _, q := range []string{name, "q"} {
		f.Do("SADD", "queues", q)
		f.Do("RPUSH", "queue:"+q, payload, "no job")
	}
	require.NoError(f, f.Store.Register(f.Context(), store.Registration{
		Proc: Proc, Workers: []string{"web-1~resqued:9120.0.0-x:q"},
		Info: map[string]string{"host": "web-1", "pid": "9120", "slot": "0", "state": "running", "threads": "1", "queues": name, "version": name},
	}))
	_, err = f.Store.PutMaster(f.Context(), store.MasterInfo{ID: Master, TTL: time.Hour, Fields: map[string]string{
		"state": "running", "host": "web-1", "slots": "1", "threads": "1", "queues": name, "version": name,
		store.FieldTemplates: `[{"runner":"app","state":"ready","pid":7}]`,
	}})
	require.NoError(f, err)
	reply, err := f.Store.Exchange(f.Context(), store.ExchangeRequest{Proc: Proc, Wants: []store.Want{{Token: redistest.Unique(), Worker: "web-1~resqued:9120.0.0-x:q"}}, Queues: []store.Queue{{Name: "q", Locked: true}}})
	require.NoError(f, err)
	require.Len(f, reply.Jobs, 1)
	record, err := json.Marshal(map[string]any{
		"failed_at": "2026/11/24 01:02:03 UTC", "payload": json.RawMessage(payload), "exception": name, "error": name,
		"backtrace": []string{name}, "worker": name, "queue": strings.ToValidUTF8(name, "?"),
	})
	require.NoError(f, err)
	f.Do("RPUSH", "failed", record, "no record")
	f.Do("SADD", "workers", "ruby:7:"+name)
	f.Do("SET", "worker:ruby:7:"+name, payload)
	sum := &history.Sum{}
	for i := range 20 {
		sum.Add(history.Processed, time.Duration(i)*time.Millisecond, time.Second)
	}
	sum.Add(history.Processed|history.Failed, time.Minute, time.Hour)
	_, err = f.Store.AddHistory(f.Context(), []history.Series{{Minute: time.Now().Unix()/60 - 2, Sums: map[history.Name]*history.Sum{
		history.AllJobs(): sum, {Kind: history.Class, Name: strings.ToValidUTF8(name, "?")}: sum, {Kind: history.Queue, Name: "q"}: sum,
	}}})
	require.NoError(f, err)
	require.NoError(f, f.Store.NoteEvent(f.Context(), store.Event{Kind: store.EventDied, By: name, Via: "daemon", Subject: name, Text: name, Count: 1}))
	f.Do("ZADD", "delayed_queue_schedule", 4102444800, "4102444800")
	f.Do("RPUSH", "delayed:4102444800", strings.Replace(payload, "{", `{"queue":"q",`, 1))
}

// Ask returns the answer to a request.
func (f *Fixture) Ask(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	f.Helper()
	r := httptest.NewRequestWithContext(f.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:5678", "127.0.0.1:40000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.Server.ServeHTTP(w, r)
	return w
}

// Get returns the answer to a request that must succeed.
func (f *Fixture) Get(path string) map[string]any {
	f.Helper()
	answer := f.Ask(http.MethodGet, path, "")
	text := answer.Body.String()
	require.Equal(f, http.StatusOK, answer.Code, "%s: %s", path, text)
	var v map[string]any
	require.NoError(f, json.Unmarshal([]byte(text), &v), path)
	return v
}

// Post returns the answer to an action, and its status.
func (f *Fixture) Post(path, body string) (map[string]any, int) {
	f.Helper()
	answer := f.Ask(http.MethodPost, path, body)
	var v map[string]any
	require.NoError(f, json.Unmarshal(answer.Body.Bytes(), &v), path)
	return v, answer.Code
}
