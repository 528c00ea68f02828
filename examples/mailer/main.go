// Command mailer is a complete worker program: one Go function as a handler, and resqued's
// command line.
//
//	go run ./examples/mailer work --queues mail
//	go run ./examples/mailer enqueue Mail 42 "hello"
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
)

// Mail is a job's arguments, in this order: {"class":"Mail","args":[42,"hello"]}.
type Mail struct {
	User    int64
	Subject string
}

func main() {
	h := resqued.New()
	resqued.Handle(h, "Mail", send, resqued.Queue("mail"), resqued.Timeout(time.Minute))
	daemon.Main(h)
}

func send(ctx context.Context, m Mail) error {
	if m.User == 0 {
		return fmt.Errorf("%w: no address to write to", resqued.Discard)
	}
	_, err := fmt.Printf("to user %d: %s\n", m.User, m.Subject)
	return err
}
