package web_test

import (
	"log"
	"net/http"

	"github.com/resqued/resqued/web"
)

// The dashboard at /jobs of a server that knows its users.
func ExampleHandler() {
	dashboard, err := web.Handler(web.Options{
		URL: "redis://127.0.0.1:6379/0", PathPrefix: "/jobs", Hosts: []string{"admin.example.com"},
		Who: func(r *http.Request) (web.Visitor, bool) {
			user, ok := userOf(r)
			return web.Visitor{Name: user.Name, Operator: user.Admin}, ok
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = dashboard.Close() }()
	mux := http.NewServeMux()
	mux.Handle("/jobs/", dashboard)
}

type user struct {
	Name  string
	Admin bool
}

// userOf stands for the sessions of a program.
func userOf(*http.Request) (user, bool) { return user{Name: "operator"}, true }
