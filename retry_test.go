package resqued_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	resqued.Handle(h, "Mail", func(context.Context, mail) error { return nil },
		resqued.Retry{Attempts: 3, Backoff: []time.Duration{0, time.Minute}, NeverOn: resqued.Errors{ExitCodes: []int{2}}})
	h.Register(resqued.Class{Name: "Whole", Handler: nothing, Retry: &resqued.Retry{Base: time.Second, Max: time.Second, ExpireAfter: time.Hour}})
	c, _ := h.Lookup("Mail")
	require.Equal(t, 3, c.Retry.Attempts)
	require.True(t, c.Retry.RetryOn.IsZero())
	require.False(t, c.Retry.NeverOn.IsZero())

	for why, class := range map[string]resqued.Class{
		`the retry of class "A": its jobs run at most once`: {AtMostOnce: true, Retry: &resqued.Retry{}},
		`negative Attempts: -1`:                             {Retry: &resqued.Retry{Attempts: -1}},
		`either Backoff or Base`:                            {Retry: &resqued.Retry{Backoff: []time.Duration{1}, Max: 1}},
		`negative Base`:                                     {Retry: &resqued.Retry{Base: -1}},
		`negative Base or Max`:                              {Retry: &resqued.Retry{Max: -1}},
		`less Max, 1s, than Base, 2s`:                       {Retry: &resqued.Retry{Base: 2 * time.Second, Max: time.Second}},
		`negative wait in Backoff: -1ns`:                    {Retry: &resqued.Retry{Backoff: []time.Duration{0, -1}}},
		`whole seconds`:                                     {Retry: &resqued.Retry{ExpireAfter: time.Millisecond}},
		`whole seconds: -1s`:                                {Retry: &resqued.Retry{ExpireAfter: -time.Second}},
		`a pattern of Messages`:                             {Retry: &resqued.Retry{RetryOn: resqued.Errors{Messages: []string{"a", "("}}}},
		`missing argument to repetition`:                    {Retry: &resqued.Retry{NeverOn: resqued.Errors{Messages: []string{"*"}}}},
	} {
		class.Name, class.Handler = "A", nothing
		func() {
			defer func() { require.Contains(t, recover(), why) }()
			resqued.New().Register(class)
		}()
	}
}
