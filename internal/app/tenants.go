package app

import (
	"sync"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/selector/filter"
)

// Tenancy returns how tenants of fair queues are told apart, nil if there are none.
func (p Program) Tenancy(c config.Config) filter.Tenancy {
	rules := jobkey.TenantsConfig{Rules: c.Fair, Program: p.Registry().FairQueues(), Log: zap.NewNop()}
	if len(rules.Rules)+len(rules.Program) == 0 {
		return nil
	}
	known := sync.OnceValue(func() *jobkey.Tenants {
		t, err := jobkey.NewTenants(rules)
		if err != nil { // the configuration was checked
			t = &jobkey.Tenants{}
		}
		return t
	})
	return func(queue string, payload []byte) string { return known().Tenant(queue, payload) }
}
