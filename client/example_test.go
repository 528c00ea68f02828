package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/resqued/resqued/client"
)

// Enqueue a job for the class Mail, with the arguments 42 and "hi".
func ExampleClient_Enqueue() {
	c, err := client.New(client.Options{URL: "redis://127.0.0.1:6379"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	type Mail struct {
		User    int
		Subject string
	}
	res, err := c.Enqueue(context.Background(), "Mail", Mail{42, "hi"}, client.Queue("mail"))
	switch {
	case client.NotEnqueued(err):
		log.Fatalf("nothing was pushed: %v", err)
	case err != nil:
		log.Fatalf("it may have been pushed: %v", err)
	}
	fmt.Println(res.Queue, res.Position)
}
