package daemon_test

import (
	"context"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
)

// A whole worker program. Its command line is that of resqued:
//
//	mailer work --queues mail
//	mailer enqueue Mail 42 hello
func ExampleMain() {
	type Mail struct {
		User    int64
		Subject string
	}
	h := resqued.New()
	resqued.Handle(h, "Mail", func(ctx context.Context, m Mail) error {
		_, err := fmt.Printf("to user %d: %s\n", m.User, m.Subject)
		return err
	}, resqued.Queue("mail"), resqued.Timeout(time.Minute))
	daemon.Main(h)
}
