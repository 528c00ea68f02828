//go:build linux

package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

// Another process runs the failure hooks after a death, and their result decides about the job.
func TestHooksAreToldOfADeath(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, way.fork, way.number, "hooks")
			for what, want := range map[string]jobctx.DeathError{
				"none": {}, "told": {Told: true}, "dies": {Told: true}, "discards": {Told: true, Discarded: true},
			} {
				var death *jobctx.DeathError
				require.ErrorAs(t, f.run(t.Context(), "Kill", what), &death, what)
				require.ErrorContains(t, death, "of runner app ")
				require.Regexp(t, "( was ended by SIGKILL| closed its socket, and was killed): last words", death.Error())
				require.Equal(t, want.Discarded, errors.Is(death, resqued.Discard))
				death.Err, death.Shared = nil, false
				require.Equal(t, &want, death, what)
			}
			require.NoError(t, f.run(t.Context(), "Echo"))
		})
	}
}

// A job whose worker process has died with it comes again: its hooks run first, and decide
// whether it runs.
func TestHooksAreToldOfAnEarlierDeath(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, way.fork, way.number, "hooks")
			again := func(f *fixture, what string) error {
				j := job("Echo", what)
				j.Deaths = 1
				return f.Perform(jobctx.WithJob(t.Context(), j), j, 0, nil)
			}
			for what, want := range map[string]jobctx.DeathError{
				"told": {Told: true}, "dies": {Told: true}, "discards": {Told: true, Discarded: true},
			} {
				var death *jobctx.DeathError
				require.ErrorAs(t, again(f, what), &death, what)
				require.ErrorContains(t, death, "died with the job before this run")
				require.Equal(t, want.Discarded, errors.Is(death, resqued.Discard))
				death.Err, want.Earlier = nil, true
				require.Equal(t, &want, death, what)
			}
			require.NoError(t, again(f, "none"))
			require.NoError(t, again(setup(t, way.fork, way.number, ""), "told"), "a shim that knows no hooks")
		})
	}
}

// A leaving process waits less than a boot for a runner to run hooks: the next process for the
// job runs them.
func TestLeavingWithoutARunner(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "runner")
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, link))
	f := setup(t, false, 1, "hooks", func(o *Options) { o.Argv[0], o.BootTimeout, o.patience = link, time.Hour, time.Second })
	require.Eventually(t, func() bool { return f.run(t.Context(), "Echo") == nil }, soon, time.Millisecond)
	require.NoError(t, os.Remove(link))
	leaving, leave := context.WithCancel(t.Context())
	leave()
	var death *jobctx.DeathError
	require.ErrorAs(t, f.run(jobctx.WithLeaving(t.Context(), leaving), "Kill", "told"), &death)
	require.False(t, death.Told)
	require.Equal(t, 1, f.logs.FilterMessageSnippet("were not told").Len())
}

// Stderr of an earlier job does not explain a later death.
func TestWordsOfAnEarlierJob(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, way.fork, way.number, "")
			require.NoError(t, f.run(t.Context(), "Stderr"))
			require.ErrorContains(t, f.run(t.Context(), "Kill"), " was ended by SIGKILL: last words")
		})
	}
}

// Hooks also run for a job that was told to stop and had to be killed, with less time.
func TestHooksOfAKilledJob(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]error{"told": nil, "discards": resqued.Discard, "hangs": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := setup(t, true, 1, "hooks", func(o *Options) {
				if o.KillAfter = 50 * time.Millisecond; what == "hangs" {
					o.KillGrace = 2 * time.Second
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.run(ctx, "Stubborn", f.path("there"), what) }()
			f.read(t, "there")
			cancel()
			err := <-ended
			var end *EndError
			if want == nil {
				require.ErrorAs(t, err, &end)
			} else {
				require.ErrorIs(t, err, want)
			}
			// On a slow machine, time may be up before they begin.
			require.Equal(t, what == "hangs", f.logs.FilterMessageSnippet("the failure hooks of a job whose").Len() == 1)
			require.NoError(t, f.run(t.Context(), "Echo"))
		})
	}
}
