package master

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

func TestPollerOfADaemon(t *testing.T) {
	t.Parallel()

	bubble(t, "one process looks for jobs, and another when it is busy or gone", func(t *testing.T) {
		f := setup(t)
		w := f.up(2)
		f.wait(3 * time.Second)
		require.Equal(t, []string{"poller true"}, w[0].told())
		require.Empty(t, w[1].told())

		w[0].say(proc.Message{Type: proc.Found})
		require.Equal(t, []string{"poller false"}, w[0].told())
		require.Equal(t, []string{"look false", "poller true"}, w[1].told())

		f.wait(3 * time.Second) // the first has an idle thread again, and says so
		w[1].crash()
		require.Equal(t, []string{"poller true"}, w[0].told())
	})

	bubble(t, "while all are busy none does", func(t *testing.T) {
		f := setup(t)
		w := f.up(2)
		w[0].say(proc.Message{Type: proc.Found})
		w[1].say(proc.Message{Type: proc.Found})
		require.Equal(t, []string{"poller true", "poller false"}, w[0].told())
		require.Equal(t, []string{"look false", "poller true", "poller false"}, w[1].told())
		f.wait(3 * time.Second)
		require.Equal(t, 1, len(w[0].told())+len(w[1].told()))
	})

	bubble(t, "a retiring process hands over", func(t *testing.T) {
		f := setup(t)
		w := f.up(2)
		w[0].say(retires("quota"))
		require.Equal(t, []string{"poller true", "poller false"}, w[0].told())
		require.Equal(t, []string{"poller true"}, w[1].told())
	})
}
