package wire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire"
)

func TestMarkRetried(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 14, 56, 21, 0, time.UTC)
	for name, c := range map[string][2]string{
		"a record as Ruby writes it": {
			`{"failed_at":"x","payload":{"class":"A","args":[1.0,"\/"]},"queue":"q"}`,
			`{"failed_at":"x","payload":{"class":"A","args":[1.0,"\/"]},"queue":"q","retried_at":"2026/11/20 14:56:21 UTC"}`,
		},
		"one that was retried before": {
			`{"retried_at": "2025/01/01 00:00:00" , "queue":"q"}`,
			`{"retried_at": "2026/11/20 14:56:21 UTC" , "queue":"q"}`,
		},
		"one with the word elsewhere": {
			`{"payload":{"retried_at":1},"error":"\"retried_at\":2}"} `,
			`{"payload":{"retried_at":1},"error":"\"retried_at\":2}","retried_at":"2026/11/20 14:56:21 UTC"} `,
		},
		"an empty one": {"{ }", `{"retried_at":"2026/11/20 14:56:21 UTC"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.MarkRetried([]byte(c[0]), at)
			require.NoError(t, err)
			require.Equal(t, c[1], string(got))
		})
	}
	for _, bad := range []string{"", "null", "[]", "rubbish", `{"a":1`, `{"a":1} {}`} {
		_, err := wire.MarkRetried([]byte(bad), at)
		require.Error(t, err, bad)
	}
}
