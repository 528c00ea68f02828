package app

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
)

func TestDeathPolicyOfPatterns(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	h.HandleArgs("Mail", func(context.Context, resqued.Args) error { return nil })
	c := config.Config{Handlers: map[string]config.Handler{
		"*":                {Command: []string{"x"}, AtMostOnce: true},
		"Billing::*":       {Command: []string{"x"}},
		"Billing::Refund*": {Command: []string{"x"}, AtMostOnce: true},
		"Report":           {Command: []string{"x"}, AtMostOnce: true},
		"Thumb":            {Command: []string{"x"}, Lock: &config.HandlerLock{Store: resqued.StorePostgres}},
	}}
	p := deathPolicy(c, h)
	require.Equal(t, []string{"*", "Billing::Refund*", "Report", "!Billing::*", "!Mail", "!Thumb"}, p.AtMostOnce)
	require.Empty(t, p.Resumes)
	require.Equal(t, []string{"Thumb"}, p.Elsewhere, "without a pattern there is nothing to except")
}

func TestQueueOfPatterns(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	h.HandleArgs("Mail", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("mail"))
	p := Program{Handlers: h}
	c := config.Config{Handlers: map[string]config.Handler{"*": {Command: []string{"x"}, Queue: "default"}, "Billing::*": {Command: []string{"x"}, Queue: "billing"}, "Report": {Command: []string{"x"}}}}
	for class, want := range map[string]string{"Mail": "mail", "Other": "default", "Billing::Pay": "billing", "Report": ""} {
		require.Equal(t, want, p.QueueOf(c, class), class)
	}
	told := ClassesOf(fleetOf(c, h).shared().Text)
	for class, want := range map[string]string{"Mail": "mail", "Other": "default", "Billing::Pay": "billing", "Report": ""} {
		require.Equal(t, want, told.QueueOf(class), class)
	}
}
