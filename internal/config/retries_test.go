package config

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandlerRetry(t *testing.T) {
	t.Parallel()
	r := from{yaml: `
handlers:
  Mail:
    command: [mail]
    retry:
      attempts: 8
      backoff: [0, 10s, 1m]
      retry_on: {exceptions: [Resqued::Timeout, "Resqued::*"], messages: ["refused|reset"], exit_codes: [1, 3]}
      never_on: {exit_codes: [2]}
      ignore_deaths: true
      expire_after: 24h
  Growing: {command: [a], retry: {backoff: {base: 1s, max: 1m}}}
  Steep: {command: [a], retry: {backoff: {base: 2h}}}
  Flat: {command: [a], retry: {attempts: 1, backoff: {max: 5s}}}
  Plain: {command: [a], retry: {}}
  None: {command: [a]}
`}.mustLoad(t)
	retries := map[string]*HandlerRetry{}
	for class, h := range r.Handlers {
		retries[class] = h.Retry
	}
	require.Equal(t, map[string]*HandlerRetry{
		"Mail": {
			Attempts: 8, Backoff: []time.Duration{0, 10 * time.Second, time.Minute},
			RetryOn: HandlerErrors{
				Exceptions: []string{"Resqued::Timeout", "Resqued::*"}, Messages: []string{"refused|reset"}, ExitCodes: []int{1, 3},
			},
			NeverOn: HandlerErrors{ExitCodes: []int{2}}, IgnoreDeaths: true, ExpireAfter: 24 * time.Hour,
		},
		"Growing": {Attempts: 5, Base: time.Second, Max: time.Minute},
		"Steep":   {Attempts: 5, Base: 2 * time.Hour, Max: 2 * time.Hour},
		"Flat":    {Attempts: 1, Base: 5 * time.Second, Max: 5 * time.Second},
		"Plain":   {Attempts: 5, Base: 10 * time.Second, Max: time.Hour},
		"None":    nil,
	}, retries)
	text, err := json.Marshal(r.Config)
	require.NoError(t, err)
	var handed Config
	require.NoError(t, json.Unmarshal(text, &handed))
	require.Equal(t, r.Handlers, handed.Handlers, "worker processes get all of it")
}

func TestHandlerRetryRefused(t *testing.T) {
	t.Parallel()
	const form = `: must be a map of the errors that are meant: {exceptions: [Resqued::Timeout], messages: [refused], exit_codes: [3]}`
	for _, tc := range []struct{ name, yaml, want string }{
		{"a number for a retry", "5", `.retry (resqued.yaml:1): must be a map, if only {} for a retry with nothing special`},
		{"nothing for a retry", "", `.retry (resqued.yaml:1): must be a map, if only {} for a retry with nothing special`},
		{"what others call it", "{max_attempts: 3}", `.retry.max_attempts (resqued.yaml:1): unknown key; did you mean "attempts"?`},
		{"nearly a field", "{ignore_death: true}", `.retry.ignore_death (resqued.yaml:1): unknown key; did you mean "ignore_deaths"?`},
		{"no attempt", "{attempts: 0}", `.retry.attempts "0" (resqued.yaml:1): must be 1 to 1000000 (the first run included)`},
		{"one wait", "{backoff: 10s}", `.retry.backoff (resqued.yaml:1): must be a list of waits, [10s, 1m, 10m], or a map, {base: 10s, max: 1h}`},
		{"no wait", "{backoff: []}", `.retry.backoff (resqued.yaml:1): must be 1 to 1000 waits: [10s, 1m, 10m]`},
		{"a negative wait", "{backoff: [1s, -1s]}", `.retry.backoff "-1s" (resqued.yaml:1): must not be negative`},
		{"no base", "{backoff: {base: 0}}", `.retry.backoff.base "0" (resqued.yaml:1): must be above 0`},
		{"another field of a backoff", "{backoff: {bas: 1}}", `.retry.backoff.bas (resqued.yaml:1): unknown key; did you mean "base"?`},
		{"a limit below the first", "{backoff: {base: 2m, max: 1m}}", `.retry.backoff.max "1m" (resqued.yaml:1): is less than base, 2m`},
		{"a list of errors", "{retry_on: [Resqued::Timeout]}", `.retry.retry_on (resqued.yaml:1)` + form},
		{"no errors", "{never_on: {}}", `.retry.never_on (resqued.yaml:1)` + form},
		{"another kind of errors", "{never_on: {exit_code: [1]}}", `.retry.never_on.exit_code (resqued.yaml:1): unknown key; did you mean "exit_codes"?`},
		{"one exit code", "{never_on: {exit_codes: 1}}", `.retry.never_on.exit_codes (resqued.yaml:1): must be a list`},
		{"no exit codes", "{never_on: {exit_codes: []}}", `.retry.never_on.exit_codes (resqued.yaml:1): is empty; leave it out`},
		{"a large exit code", "{never_on: {exit_codes: [256]}}", `.retry.never_on.exit_codes "256" (resqued.yaml:1): must be an exit code, 1 to 255`},
		{
			"a code that means something else", "{retry_on: {exit_codes: [75]}}",
			`.retry.retry_on.exit_codes "75" (resqued.yaml:1): is not a failure: a command exits with 75 to run again, and with 100 to be discarded`,
		},
		{"an empty name", "{retry_on: {exceptions: ['']}}", `.retry.retry_on.exceptions (resqued.yaml:1): must not be empty`},
		{"an odd pattern", "{retry_on: {messages: ['(']}}", `.retry.retry_on.messages "(" (resqued.yaml:1): must be a regular expression, as Go's regexp reads them`},
		{"part of a second", "{expire_after: 1500ms}", `.retry.expire_after "1500ms" (resqued.yaml:1): must be whole seconds`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := from{yaml: "handlers: {A: {command: [a], retry: " + tc.yaml + "}}"}.load(t)
			require.EqualError(t, err, "handlers.A"+tc.want)
		})
	}
	_, err := from{yaml: "handlers: {A: {command: [a], at_most_once: true, retry: {}}}"}.load(t)
	require.EqualError(t, err, "handlers.A (resqued.yaml:1): has at_most_once and retry, which contradict each other; keep one of them")
}
