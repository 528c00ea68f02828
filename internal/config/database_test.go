package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	const secret = "postgres://app:hunter2@db/app?sslpassword=hunter2"
	file := func(t *testing.T, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "url")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	t.Run("a password is kept, and not shown", func(t *testing.T) {
		t.Parallel()
		r := from{env: "DATABASE_URL=" + secret}.mustLoad(t)
		require.Equal(t, secret, r.DatabaseURL)
		require.Equal(t, "postgres://app:xxxxx@db/app?sslpassword=xxxxx", r.Redacted().DatabaseURL)
		for _, line := range Plan(r) {
			require.NotContains(t, line.Value, "hunter2")
		}
	})
	t.Run("that of a file wins", func(t *testing.T) {
		t.Parallel()
		path := file(t, secret+"\n")
		r := from{env: "DATABASE_URL=postgres://other RESQUED_DATABASE_URL_FILE=" + path}.mustLoad(t)
		require.Equal(t, secret, r.DatabaseURL)
		require.Equal(t, "RESQUED_DATABASE_URL_FILE", r.Sources["database_url"].Name)
		require.Empty(t, r.Warnings)
		require.NoError(t, os.Chmod(path, 0o644))
		r = from{yaml: "database_url: postgres://other", env: "RESQUED_DATABASE_URL_FILE=" + path}.mustLoad(t)
		require.Len(t, r.Warnings, 2)
		require.Equal(t, "exposed", r.Warnings[0].Code)
		require.Equal(t, "overruled", r.Warnings[1].Code)
	})
	t.Run("another program's DATABASE_URL is not looked at", func(t *testing.T) {
		t.Parallel()
		r := from{env: "DATABASE_URL=mysql2://app:hunter2@db/app"}.mustLoad(t)
		require.Empty(t, r.DatabaseURL)
		require.Equal(t, FromDefault, r.Sources["database_url"].Kind)
	})
	t.Run("what is meant for resqued is refused, without its password", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"mysql2://app:hunter2@db/app": "is not of PostgreSQL; write postgres://user@host:5432/database",
			"hunter2":                     "not a URL; write postgres://user@host:5432/database",
		} {
			_, err := from{env: "RESQUED_DATABASE_URL=" + text}.load(t)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "hunter2")
			_, err = from{yaml: "database_url_file: " + file(t, text)}.load(t)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "hunter2")
		}
		_, err := from{yaml: "database_url_file: " + file(t, "a\nb")}.load(t)
		require.ErrorContains(t, err, "more than one line; write only the URL of the database into it")
	})
}

func TestLockStore(t *testing.T) {
	t.Parallel()
	r := from{yaml: `handlers: {A: {command: [a], lock: {store: postgres}}, B: {command: [b], lock: {store: redis, loner: yes}}}`}.mustLoad(t)
	require.Equal(t, "postgres", r.Handlers["A"].Lock.Store)
	require.Equal(t, "redis", r.Handlers["B"].Lock.Store)
	for lock, want := range map[string]string{
		"store: mysql":                      "not known, one of redis, postgres",
		"store: postgres, redis: redis://h": "has redis and store: postgres",
		"store: postgres, loner: true":      "has loner and store: postgres",
	} {
		_, err := from{yaml: `handlers: {A: {command: [a], lock: {` + lock + `}}}`}.load(t)
		require.ErrorContains(t, err, want)
	}
}
