package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOptionalArguments: a job for which a new field says nothing is the job of before.
func TestOptionalArguments(t *testing.T) {
	t.Parallel()
	type mail struct {
		User    int
		Urgent  bool   `resqued:"optional"`
		Subject string `resqued:"optional"`
		hidden  int
		Trace   *string `resqued:"optional"`
	}
	for want, args := range map[string]any{
		`[1]`:               mail{User: 1},
		`[0]`:               &mail{hidden: 1},
		`[1,true]`:          mail{User: 1, Urgent: true},
		`[1,false,"x"]`:     mail{User: 1, Subject: "x"},
		`[1,false,"",""]`:   mail{User: 1, Trace: new(string)},
		`[[1,false,""],""]`: []any{[]any{1, false, ""}, ""},
	} {
		got, err := Args(args)
		require.NoError(t, err)
		require.Equal(t, want, got.String())
	}
}
