package main

import (
	"context"
	"fmt"

	"github.com/resqued/resqued"
)

func registerOnce(h *resqued.Handlers, n *notes) {
	// Once is a Gate with a class lock that is never run again automatically.
	resqued.Handle(h, "Once", func(ctx context.Context, id int) error {
		return n.gate(ctx, id, true)
	}, resqued.AtMostOnce(), resqued.Lock[int]{})
	// Bomb starts a goroutine that panics, which the job cannot recover.
	resqued.Handle(h, "Bomb", func(ctx context.Context, id int) error {
		if err := n.mark("started", id); err != nil {
			return err
		}
		go func() { panic(fmt.Sprintf("job %d blows up as it should", id)) }()
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
