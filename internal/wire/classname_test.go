package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire"
)

func TestClassNames(t *testing.T) {
	t.Parallel()
	for class, want := range map[string][]string{
		"Mail":          {"Mail"},
		"::Mail":        {"::Mail", "Mail"},
		"send-mail":     {"send-mail", "SendMail"},
		"::send--mail-": {"::send--mail-", "send--mail-", "sendMail"},
		"":              {""},
	} {
		require.Equal(t, want, wire.ClassNames(class), class)
	}
}
