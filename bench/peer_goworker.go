package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/benmanns/goworker"

	"github.com/resqued/resqued/bench/job"
)

func goworkerPeer() *peer {
	return &peer{
		name: "goworker", title: "goworker", guess: 4000,
		skip: func(s *scenario) string {
			if s.Bulk {
				return "has no call for many jobs"
			}
			return only(s, "")
		},
		fill:   fillResque,
		client: newGoworkerClient,
		work:   workGoworker,
	}
}

func goworkerSettings(sp *spec, connections int) {
	_ = flag.CommandLine.Parse(nil) // it would read the arguments of this program
	goworker.SetSettings(goworker.WorkerSettings{
		URI: "redis://" + sp.Redis + "/", Namespace: resqueNamespace + ":", QueuesString: strings.Join(sp.Scenario.queueNames(), ","),
		IntervalFloat: 5, Concurrency: sp.Scenario.Threads, Connections: connections, UseNumber: true,
	})
}

func workGoworker(ctx context.Context, sp *spec, h *job.Handler) error {
	goworkerSettings(sp, sp.Scenario.Threads+2)
	goworker.Register(job.Class, func(_ string, arguments ...any) error {
		if len(arguments) != 2 {
			return fmt.Errorf("%d arguments", len(arguments))
		}
		number, _ := arguments[0].(json.Number)
		n, err := number.Int64()
		if err != nil {
			return err
		}
		text, _ := arguments[1].(string)
		return h.Perform(ctx, n, text)
	})
	return goworker.Work()
}

type goworkerClient struct{}

func newGoworkerClient(_ context.Context, sp *spec) (client, error) {
	if sp.Scenario.Kind != kindDrain { // a chain's jobs use the connections of the workers
		goworkerSettings(sp, max(sp.Scenario.Goroutines, 4))
	}
	return &goworkerClient{}, nil
}

func (*goworkerClient) enqueue(_ context.Context, queue string, n int64, text string) error {
	return goworker.Enqueue(&goworker.Job{Queue: queue, Payload: goworker.Payload{Class: job.Class, Args: []any{n, text}}})
}

func (*goworkerClient) bulk(context.Context, string, int64, int, string) error { return errNoBulk }
