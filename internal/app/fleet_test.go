package app

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/selector"
)

// Differences that break a promise are named, others are not.
func TestFleetDifferences(t *testing.T) {
	t.Parallel()
	of := func(queues string, change func(*config.Config)) fleet {
		spec, _, err := selector.Parse(strings.Split(queues, ","), 8)
		require.NoError(t, err)
		c := config.Config{Queues: spec, JobLockKey: "class-args", LocketedQueues: []string{"*"}, SchedulerLock: "none", Lines: config.LinesAuto}
		if change != nil {
			change(&c)
		}
		return fleetOf(c, resqued.New())
	}
	handlers := func(class string, h config.Handler) func(*config.Config) {
		return func(c *config.Config) { c.Handlers = map[string]config.Handler{class: h} }
	}
	key := func(c *config.Config) { c.JobLockKey = "payload" }
	fairly := func(queue string, rule jobkey.Fair) func(*config.Config) {
		return func(c *config.Config) { c.Fair = map[string]jobkey.Fair{queue: rule} }
	}
	for name, tc := range map[string]struct {
		a, b fleet
		want string // the setting; "" = nothing is told
	}{
		"equal":                              {of("*", nil), of("*", nil), ""},
		"other queues":                       {of("a", nil), of("b", key), ""},
		"other settings of no consequence":   {of("*", nil), of("*", func(c *config.Config) { c.JobLockDuration, c.MaxDeaths, c.WorkerCount = 1, 1, 9 }), ""},
		"keys":                               {of("*", nil), of("mail", key), "job_lock_key"},
		"keys of queues that one leaves out": {of("*,!mail", nil), of("mail", key), ""},
		"keys of queues without locks": {
			of("mail", func(c *config.Config) { c.LocketedQueues = []string{"!mail"} }),
			of("mail", func(c *config.Config) { c.LocketedQueues, c.JobLockKey = nil, "payload" }), "",
		},
		"locked queues":               {of("img_*", nil), of("*", func(c *config.Config) { c.LocketedQueues = []string{"!img_*", "*"} }), "locketed_queues"},
		"locked queues of others":     {of("a", nil), of("a,b", func(c *config.Config) { c.LocketedQueues = []string{"a"} }), ""},
		"unique queues":               {of("a", nil), of("b", func(c *config.Config) { c.UniqueQueues = []string{"c"} }), "unique_queues"},
		"unique queues, in any order": {of("a", func(c *config.Config) { c.UniqueQueues = []string{"a", "b"} }), of("a", func(c *config.Config) { c.UniqueQueues = []string{"b", "a", "b"} }), ""},
		"classes that one knows":      {of("*", nil), of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{}})), ""},
		"classes":                     {of("*", handlers("A", config.Handler{})), of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{}})), "lock of class A"},
		"the arguments of a lock": {
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{Args: []int{0}}})),
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{Args: []int{1}}})), "lock of class A",
		},
		"the server of a lock": {
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{Redis: "redis://:S3CRET@a"}})),
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{Redis: "redis://:S3CRET@b"}})), "lock of class A",
		},
		"a class here, a pattern there": {
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{}})),
			of("*", handlers("*", config.Handler{Lock: &config.HandlerLock{}})), "",
		},
		"a class here, a pattern with another lock there": {
			of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{}})), of("*", handlers("*", config.Handler{})), "lock of class A",
		},
		"fair": {of("*", nil), of("mail", fairly("mail", jobkey.Fair{Key: "{{args.0}}"})), "fair of queue mail"},
		"fair, of a queue that a pattern has": {
			of("m*", fairly("mail", jobkey.Fair{Key: "{{args.0}}"})), of("*", fairly("mail", jobkey.Fair{Key: "{{args.1}}"})), "fair of queue mail",
		},
		"fair, the same by another name": {of("mail", fairly("*", jobkey.Fair{Key: "{{args.0}}"})), of("mail", fairly("mail", jobkey.Fair{Key: "{{args.0}}"})), ""},
		"fair, the weights": {
			of("mail", fairly("*", jobkey.Fair{Key: "{{args.0}}", Weights: map[string]int{"S3CRET": 2}})),
			of("mail", fairly("*", jobkey.Fair{Key: "{{args.0}}", Weights: map[string]int{"S3CRET": 3}})), "fair of queue mail",
		},
		"fair, of other queues": {of("a", fairly("mail", jobkey.Fair{Key: "{{args.0}}"})), of("*", nil), ""},
		"fair, without lines": {
			of("*", fairly("mail", jobkey.Fair{Key: "{{args.0}}"})),
			of("*", func(c *config.Config) { fairly("mail", jobkey.Fair{Key: "{{args.0}}"})(c); c.Lines = "off" }), "fair of queue mail",
		},
		"patterns":     {of("*", handlers("A*", config.Handler{AtMostOnce: true})), of("*", handlers("*", config.Handler{})), "at_most_once of class A*"},
		"at most once": {of("*", handlers("A", config.Handler{})), of("*", handlers("A", config.Handler{AtMostOnce: true})), "at_most_once of class A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, pair := range [][2]fleet{{tc.a, tc.b}, {tc.b, tc.a}} {
				found := pair[0].shared().Differs(pair[1].shared().Text)
				if tc.want == "" {
					require.Empty(t, found)
					continue
				}
				require.Len(t, found, 1)
				require.Equal(t, tc.want, found[0].Setting)
				require.NotEqual(t, found[0].Here, found[0].There)
				require.NotContains(t, pair[1].shared().Text, "S3CRET")
			}
		})
	}
	require.Empty(t, of("*", nil).shared().Differs("of another version"))

	// Functions cannot be compared: they may compute what the other daemon has configured.
	h := resqued.New()
	resqued.Handle(h, "A", func(context.Context, int) error { return nil }, resqued.Lock[int]{
		Identifier: func(int) string { return "" },
	})
	inProgram := fleetOf(config.Config{LocketedQueues: []string{"*"}, JobLockKey: "class-args", Queues: selector.Spec{Patterns: []selector.Pattern{{Text: "*", Glob: true}}}}, h)
	require.Empty(t, inProgram.differs(of("*", handlers("A", config.Handler{Lock: &config.HandlerLock{}}))))
	require.Len(t, inProgram.differs(of("*", handlers("A", config.Handler{}))), 1)

	h = resqued.New()
	h.Fair("mail", resqued.Fair{Tenant: func(*resqued.Job) string { return "" }})
	inProgram = fleetOf(config.Config{Lines: config.LinesAuto, JobLockKey: "class-args", Queues: selector.Spec{Patterns: []selector.Pattern{{Text: "*", Glob: true}}}}, h)
	require.Empty(t, inProgram.differs(of("mail", func(c *config.Config) { c.LocketedQueues = nil; fairly("mail", jobkey.Fair{Key: "{{args.0}}"})(c) })))
	require.Len(t, inProgram.differs(of("mail", func(c *config.Config) { c.LocketedQueues = nil })), 1)
}
