package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// room is a server with that many free connections.
type room struct {
	most, free int
	known      bool
	err        error
}

func (r room) CanWait(context.Context) error                { return r.err }
func (r room) Connections(context.Context) (int, int, bool) { return r.most, r.free, r.known }

func TestWaits(t *testing.T) {
	t.Parallel()
	old := errors.New("unknown command BLMOVE")
	for name, tc := range map[string]struct {
		mode  string
		redis room
		want  waits
		level string // of the line in the log
	}{
		"off":                                      {config.WakerOff, room{10000, 10000, true, nil}, waits{}, ""},
		"auto, a server of one's own":              {config.WakerAuto, room{10000, 9990, true, nil}, waits{16, 512}, ""},
		"auto, few connections":                    {config.WakerAuto, room{1000, 100, true, nil}, waits{6, 125}, ""},
		"auto, hardly any":                         {config.WakerAuto, room{20, 14, true, nil}, waits{}, "info"},
		"auto, a server that does not say":         {config.WakerAuto, room{0, 0, false, nil}, waits{4, 128}, ""},
		"auto, an old server":                      {config.WakerAuto, room{10000, 9990, true, old}, waits{}, "info"},
		"on":                                       {config.WakerOn, room{10000, 9990, true, nil}, waits{16, 512}, ""},
		"on, few connections":                      {config.WakerOn, room{20, 10, true, nil}, waits{16, 512}, "warn"},
		"on, a server that does not say":           {config.WakerOn, room{0, 0, false, nil}, waits{16, 512}, ""},
		"on, an old server":                        {config.WakerOn, room{10000, 9990, true, old}, waits{}, "warn"},
		"a fleet leaves the others most of it":     {config.WakerAuto, room{40, 16, true, nil}, waits{1, 5}, ""},
		"auto, without a connection that is spare": {config.WakerAuto, room{100, 0, true, nil}, waits{}, "info"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, lines := observer.New(zap.InfoLevel)
			d := &Daemon{Log: zap.New(core)}
			for range 2 { // a reload says nothing again
				require.Equal(t, tc.want, d.waits(t.Context(), tc.mode, tc.redis))
			}
			if tc.level == "" {
				require.Zero(t, lines.Len())
				return
			}
			require.Equal(t, 1, lines.Len())
			require.Equal(t, tc.level, lines.All()[0].Level.String())
		})
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, url string) *store.Store {
		t.Helper()
		s, err := store.Open(store.Options{URL: url, Namespace: redistest.Namespace(t)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	t.Run("the limit less those that are open", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxclients", "50").Err())
		most, free, known := open(t, server.URL()).Connections(t.Context())
		require.True(t, known)
		require.Equal(t, 50, most)
		require.Greater(t, free, 40)
		require.Less(t, free, 50)
	})
	t.Run("a user without the rights to ask", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Users: []string{"resqued on >SECRET ~* &* +@all -info -config"}})
		_, _, known := open(t, server.URLAs("resqued", "SECRET")).Connections(t.Context())
		require.False(t, known)
	})
}
