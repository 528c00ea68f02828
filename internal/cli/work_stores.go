package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/proc"
)

// listStoresFlag has "work" print which stores it would work, and do nothing else. A daemon asks
// the program on disk so, which may know keys that the running one does not.
const listStoresFlag = "list-stores"

// workStores runs a daemon with several stores.
func (a *cli) workStores(c *cobra.Command, r *config.Resolved) error {
	switch {
	case a.elder != nil:
		return usage("", "stores cannot be added to a daemon while it runs: restart it")
	case a.received == nil:
		return errors.New("no signals: this verb runs from the program's own command line only")
	}
	defer a.hush()
	plans, err := a.storePlans(r)
	if err != nil {
		return err
	}
	if list, _ := c.Flags().GetBool(listStoresFlag); list {
		return a.printJSON(plans)
	}
	first := r.Stores[0]
	a.logSettings(c, first, first.LogLevel)
	log, _ := app.NewLogger(os.Stderr, first.LogFormat, first.LogLevel)
	defer func() { _ = log.Sync() }()
	log.Info("configuration", zap.String("file", r.File), zap.Stringer("by", r.Sources[config.ConfigFlag]), zap.Strings("stores", storeNames(r)))
	for _, w := range r.Warnings {
		if w.Key == "stores" { // others are said by the masters
			log.Warn(w.Message, zap.String("key", w.Key))
		}
	}
	i, err := proc.Started()
	if err != nil {
		return fmt.Errorf("how this program was started: %w", err)
	}
	if err := first.CheckPIDFile(); err != nil {
		return configProblem(err)
	}
	_, remove, err := a.pidFile(first.PIDFile, log)
	if err != nil {
		return err
	}
	defer remove()
	d := app.Stores{
		Version: version(), Log: log, Signals: a.received, Invocation: i, ControlSocket: first.ControlSocket, First: plans, UntilEmpty: first.UntilEmpty,
		Plan: func(ctx context.Context) ([]app.StorePlan, error) { return a.storesAgain(ctx, c, r, i) },
	}
	err = d.Run(c.Context())
	if refused, ok := errors.AsType[*app.ErrStore](err); ok {
		return &problem{exit: refused.Code, code: "config", lines: []string{err.Error()}, cause: err}
	}
	return err
}

// idleSchedules warns of the schedules that no master keeps, because their queues belong to a store that
// the daemon does not work.
func (a *cli) idleSchedules(r *config.Resolved) (warnings []config.Warning) {
	for _, one := range r.Stores {
		if len(one.Queues.Patterns) > 0 {
			continue
		}
		for _, s := range slices.Concat(one.Schedules, a.program().ClassSchedules(one.Config)) {
			warnings = append(warnings, config.Warning{Key: "stores", Code: "idle_schedule", Message: fmt.Sprintf(
				"schedule %s is kept by no daemon of this configuration: its queue, %s, belongs to store %s, which has no queues here. Give it to a daemon that works that store.",
				s.Name, s.Queue, one.Store)})
		}
	}
	return warnings
}

// storesAgain reads which stores there are now.
func (a *cli) storesAgain(ctx context.Context, c *cobra.Command, old *config.Resolved, i proc.Invocation) ([]app.StorePlan, error) {
	if changed, err := i.Changed(); err == nil && changed {
		return app.NewerPlan(ctx, i, "--"+listStoresFlag)
	}
	r, err := a.loadAs(c, old.Again(config.Options{NeedQueues: true, RunsPrograms: true}))
	if err != nil {
		return nil, err
	}
	return a.storePlans(r)
}

// storePlans checks the configurations of all stores and returns those that are worked.
func (a *cli) storePlans(r *config.Resolved) ([]app.StorePlan, error) {
	var plans []app.StorePlan
	for _, one := range r.Stores {
		if err := a.checkRedis(one.Config); err != nil {
			return nil, err
		}
		if len(one.Queues.Patterns) == 0 {
			continue // it has routes alone
		}
		if err := a.checkDatabase(one.Config); err != nil {
			return nil, err
		}
		// A digest, because the address may hold a password.
		sum := sha256.Sum256([]byte(one.RedisURL + "\x00" + one.Namespace))
		plans = append(plans, app.StorePlan{Name: one.Store, Place: hex.EncodeToString(sum[:8])})
	}
	if len(r.Stores) > 0 && len(plans) == 0 {
		return nil, usage("", "no store has queues: there is nothing to work")
	}
	return plans, nil
}
