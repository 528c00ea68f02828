package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

// room is a server with so many connections to spare.
type room struct {
	free  int
	known bool
	err   error
}

func (r room) CanWait(context.Context) error               { return r.err }
func (r room) FreeConnections(context.Context) (int, bool) { return r.free, r.known }

func TestWaits(t *testing.T) {
	t.Parallel()
	old := errors.New("unknown command BLMOVE")
	for name, tc := range map[string]struct {
		mode  string
		redis room
		want  int
		level string // of the line in the log
	}{
		"off":                                      {config.WakerOff, room{10000, true, nil}, 0, ""},
		"auto, a server of one's own":              {config.WakerAuto, room{9990, true, nil}, 16, ""},
		"auto, few connections":                    {config.WakerAuto, room{100, true, nil}, 6, ""},
		"auto, hardly any":                         {config.WakerAuto, room{14, true, nil}, 0, "info"},
		"auto, a server that does not say":         {config.WakerAuto, room{0, false, nil}, 4, ""},
		"auto, an old server":                      {config.WakerAuto, room{9990, true, old}, 0, "info"},
		"on":                                       {config.WakerOn, room{9990, true, nil}, 16, ""},
		"on, few connections":                      {config.WakerOn, room{10, true, nil}, 16, "warn"},
		"on, a server that does not say":           {config.WakerOn, room{0, false, nil}, 16, ""},
		"on, an old server":                        {config.WakerOn, room{9990, true, old}, 0, "warn"},
		"a fleet leaves the others most of it":     {config.WakerAuto, room{16, true, nil}, 1, ""},
		"auto, without a connection that is spare": {config.WakerAuto, room{0, true, nil}, 0, "info"},
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

func TestFreeConnections(t *testing.T) {
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
		free, known := open(t, server.URL()).FreeConnections(t.Context())
		require.True(t, known)
		require.Greater(t, free, 40)
		require.Less(t, free, 50)
	})
	t.Run("a user without the rights to ask", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Users: []string{"resqued on >SECRET ~* &* +@all -info -config"}})
		_, known := open(t, server.URLAs("resqued", "SECRET")).FreeConnections(t.Context())
		require.False(t, known)
	})
}
