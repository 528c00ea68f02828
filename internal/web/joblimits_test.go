package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/web"
)

// TestJobLimits: the page, the API and the metrics of limits, and overrides; keys are made of arguments.
func TestJobLimits(t *testing.T) {
	t.Parallel()
	for _, hides := range []bool{false, true} {
		f := setup(t, func(o *web.Options) {
			if hides {
				rules, err := redact.Parse("Pay=args.0")
				require.NoError(t, err)
				o.Redact = rules
			}
		})
		f.Do("SADD", "resqued:masters", "web:b:1-2")
		f.Do("HSET", "resqued:master:web:b:1-2", "host", "web", "state", "running", "settings", `{"limits":{"stripe":"{\"concurrency\":1}"}}`)
		f.Do("ZADD", "resqued:procs", "9999999999999", "web:b:1-2:0.0")
		f.Do("HSET", "resqued:slots:web:b:1-2:0.0", "7", " 7\n14 0\n\x01stripe:secret")
		f.Do("HSET", "resqued:inflight:web:b:1-2:0.0", "7", "")
		f.Do("HSET", "resqued:awaited", "\x01stripe:secret", "7 billing")
		f.Do("SADD", "resqued:gates", "\x01stripe:secret")
		f.Do("RPUSH", "resqued:line:7:billing:\x01stripe:secret", "a", "b")
		f.Do("HSET", "resqued:throttled", "stripe", "5")

		for _, path := range []string{"/api/v1/limits", "/limits"} {
			answer := f.Ask(http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, answer.Code, answer.Body)
			require.Contains(t, answer.Body.String(), "billing")
			if hides {
				require.NotContains(t, answer.Body.String(), "secret")
			} else {
				require.Contains(t, answer.Body.String(), "secret")
			}
		}
		text := f.Ask(http.MethodGet, "/metrics", "").Body.String()
		require.Contains(t, text, `resqued_limit_used{limit="stripe"} 1`+"\n")
		require.Contains(t, text, `resqued_limit_waiting{limit="stripe"} 2`+"\n")
		require.Contains(t, text, `resqued_limit_throttled_total{limit="stripe"} 5`+"\n")
		require.NotContains(t, text, "secret")

		for body, want := range map[string]int{
			`{"concurrency":3,"for":"30m"}`: http.StatusOK, `{"rate":"5/s","burst":2}`: http.StatusOK, `{}`: http.StatusBadRequest,
			`{"concurrency":-1}`: http.StatusBadRequest, `{"rate":"5"}`: http.StatusBadRequest, `{"concurrency":1,"for":"soon"}`: http.StatusBadRequest,
		} {
			answer := f.Ask(http.MethodPost, "/api/v1/limits/stripe:42/override", body)
			require.Equal(t, want, answer.Code, "%s: %s", body, answer.Body)
		}
		require.Equal(t, http.StatusNotFound, f.Ask(http.MethodPost, "/api/v1/limits/nope/override", `{"concurrency":1}`).Code)
		require.Contains(t, f.Ask(http.MethodPost, "/api/v1/limits/stripe:42/reset", "").Body.String(), `"reset"`)
		require.Contains(t, f.Ask(http.MethodPost, "/api/v1/limits/stripe:42/reset", "").Body.String(), `"was_not_overridden"`)
	}
}
