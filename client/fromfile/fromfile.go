// Package fromfile opens the clients of a program from the configuration file of the daemons,
// so one place says which queue is in which store. Unlike package client it links the code that
// reads and checks that file.
package fromfile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/wire"
)

// Stores returns a client for the stores of a configuration file; empty = the one that
// RESQUED_CONFIG names. Like a daemon it reads the file and the environment: URLs with their
// passwords, namespaces, which queue is in which store, unique queues, and the queues and locks
// of the file's handlers. A file without stores has one, "default", with all queues.
//
// Of the Options only Handlers, PoolSize and Hooks are used, which no file can have. Like
// client.NewStores it does not connect.
func Stores(file string, o client.Options) (*client.Stores, error) {
	r, err := config.Load(config.Options{File: file, FileSource: config.Source{Kind: config.FromFile, Name: "argument of Stores"}})
	if err != nil {
		return nil, fmt.Errorf("fromfile: %w", err)
	}
	if r.File == "" {
		return nil, errors.New("fromfile: no configuration file: name one, or set RESQUED_CONFIG")
	}
	each := r.Stores
	if len(each) == 0 {
		each = []*config.Resolved{r}
	}
	first := each[0].Config
	program := app.Program{Handlers: o.Handlers}
	if program.Handlers == nil {
		program.Handlers = resqued.New()
	}
	o.URL, o.Namespace, o.CAFile, o.CertFile, o.KeyFile = "", "", "", "", "" // stores get defaults for what the file leaves out
	o.Handlers, o.Ruby34 = program.Classes(first), app.RubyStyle(first) == wire.Ruby34
	o.UniqueQueues, o.UniqueQueuesStrict = first.UniqueQueues, first.UniqueQueuesStrict
	all := make([]client.Store, len(each))
	for i, one := range each {
		all[i] = client.Store{
			Name: "default", Queues: []string{"*"}, URL: one.RedisURL, Namespace: one.Namespace,
			CAFile: one.RedisCAFile, CertFile: one.RedisCertFile, KeyFile: one.RedisKeyFile,
		}
		if one.Store != "" {
			of := slices.IndexFunc(one.Routes, func(r config.Route) bool { return r.Store == one.Store })
			all[i].Name, all[i].Queues = one.Store, one.Routes[of].Queues
		}
	}
	return client.NewStores(o, all...)
}
