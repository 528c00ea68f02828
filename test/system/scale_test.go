package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// metricsAPI returns the metadata of the trigger by which deploy/kubernetes/keda.yaml asks resqued.
func metricsAPI(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/keda.yaml")
	require.NoError(t, err)
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object struct {
			Spec struct {
				Triggers []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for _, trigger := range object.Spec.Triggers {
			if trigger.Type == "metrics-api" {
				return trigger.Metadata
			}
		}
	}
	t.Fatal("keda.yaml has no trigger of the type metrics-api")
	return nil
}

// TestScale reads the number of jobs like KEDA's metrics-api scaler: by the manifest's URL, with
// a token, from an answer 200, at valueLocation, which is a single name here.
func TestScale(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{
		App: true, Threads: 4, Queues: "work:1,lined,fair",
		Config: "fair: {fair: '{{args.0}}'}\nunique_queues: [once]\n",
	})
	t.Cleanup(d.Open)
	ctx := t.Context()
	d.Push("work", "Gate", 1, 2, 3)                                // one is in hand, two wait for the cap
	d.PushRaw("lined", same(4, `{"class":"Gate","args":[10]}`)...) // one is in hand, three wait for its lock
	d.Push("fair", "Gate", 20, 21, 22, 23, 24)                     // two are in hand, three wait for their turn
	d.Push("plain", "Count", 1, 2)                                 // nothing works them yet
	d.Push("img_paused", "Count", 1)
	require.NoError(t, d.Client.RPush(ctx, d.Key("resqued:suspects:plain"), `{"class":"Count","args":[3]}`).Err())
	for _, args := range [][]string{
		{"enqueue", "Count", "1", "--queue", "once"},
		{"enqueue", "Count", "2", "--queue", "once"},
		{"enqueue", "Count", "1", "--queue", "once"}, // dropped
		{"enqueue", "Count", "3", "--queue", "plain", "--in", "1h"},
		{"queues", "pause", "img_paused"},
	} {
		_, stderr, code := d.Run(append(args, "--config", d.ConfigFile)...)
		require.Zero(t, code, "%s: %s", args, stderr)
	}
	d.AwaitNoted("started", 4)
	proctest.Await(t, patience, func() bool {
		return d.Client.HGet(ctx, d.Key("resqued:lined"), "lined").Val() == "3" && d.Client.LLen(ctx, d.Key("queue:fair")).Val() == 0
	}, "jobs in lines")

	trigger := metricsAPI(t)
	require.Equal(t, "bearer", trigger["authMode"])
	at, err := url.Parse(trigger["url"])
	require.NoError(t, err)
	tokens := filepath.Join(t.TempDir(), "web-tokens")
	token, stderr, code := d.Run("web", "token", "add", "keda", "--role", "viewer", "--tokens", tokens)
	require.Zero(t, code, stderr)
	address, passed := listening(t, "127.0.0.1")
	cmd := d.Command(context.Background(), nil, "web", "--require-login", "--tokens", tokens, "--host", at.Hostname(), "--listen", "fd:3")
	cmd.ExtraFiles = []*os.File{passed}
	client := dialing("tcp", address)
	startWeb(t, cmd, client)
	ask := func(query string) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Scheme+"://"+at.Host+at.Path+query, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, body
	}
	value := func(query, location string) float64 {
		t.Helper()
		code, body := ask(query)
		require.Equal(t, http.StatusOK, code, "%s", body)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(body, &fields))
		require.IsType(t, 0.0, fields[location], "%s", body)
		return fields[location].(float64)
	}
	for query, want := range map[string]struct{ waiting, running float64 }{
		"":               {2 + 3 + 2 + 2, 4},
		"?queues=work:1": {2, 1},
		"?queues=lined":  {0, 1},
		"?queues=fair":   {3, 2},
		"?queues=plain":  {2, 0},
		"?queues=img_*":  {0, 0},
		"?queues=once":   {2, 0},
		"?queues=none":   {0, 0},
		"?queues=" + url.QueryEscape("*,!once,!l*"): {2 + 3 + 2, 3},
	} {
		require.Equal(t, want.waiting, value(query, "waiting"), query)
		require.Equal(t, want.running, value(query, "running"), query)
		require.Equal(t, want.waiting+want.running, value(query, trigger["valueLocation"]), query)
	}
	value("?"+at.RawQuery, trigger["valueLocation"])
	for _, query := range []string{"?queues=", "?queue=mail", "?queues=a&queues=b", "?queues=img_[", "?queues=!low", "?queues=a,a", "?queues=%ff", "?queues=mail:0"} {
		code, body := ask(query)
		require.Equal(t, http.StatusBadRequest, code, "%s: %s", query, body)
	}
	token = "another"
	code, _ = ask("")
	require.Equal(t, http.StatusUnauthorized, code)
}
