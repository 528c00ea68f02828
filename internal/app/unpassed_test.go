package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/config"
)

func TestUnpassed(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=/bin", "DATABASE_URL=postgres://u:hunter2@h/d", "REDIS_URL=redis://h", "SECRET_KEY_BASE=hunter2", "RESQUED_X_KEY=1", "SSH_AUTH_SOCK=/s", "API_KEY=a"}
	c := config.Config{Runners: map[string]config.Runner{"app": {Env: map[string]string{"SECRET_KEY_BASE": "x"}}}, EnvKeep: []string{"REDIS_URL"}, EnvDrop: []string{"API_KEY"}}
	require.Equal(t, []config.Warning{{
		Key: "runners.app.env", Code: "not_passed",
		Message: "runner app: of this environment it does not get DATABASE_URL, as no command does. Name those that the application needs in env_keep: [DATABASE_URL], and the others in env_drop, which ends this warning.",
	}}, unpassed(c, environ))
	c.EnvKeep = []string{"*_URL"}
	require.Empty(t, unpassed(c, environ))
	require.Empty(t, unpassed(config.Config{}, environ))
}
