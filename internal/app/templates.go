package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/runner/template"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
)

// generation holds the templates of one reading of the configuration. A reload boots another
// one, with the code as of then.
type generation struct {
	names     []string
	templates []*template.Template
}

func bootTemplates(c config.Config, handlers *resqued.Handlers, log *zap.Logger) (*generation, error) {
	g := &generation{}
	if !template.Supported {
		return g, nil
	}
	for _, name := range usedRunners(c, handlers) {
		r := c.Runners[name]
		if !r.Fork {
			continue
		}
		t, err := template.Start(template.Options{
			Runner: name, Argv: r.Command, Dir: r.Dir, Env: append(program.Scrub(os.Environ(), envRules(c)), envList(r.Env)...), Concurrency: r.Concurrency, BootTimeout: r.BootTimeout, Log: log,
		})
		if err != nil {
			g.stop()
			return nil, err
		}
		g.names, g.templates = append(g.names, name), append(g.templates, t)
	}
	return g, nil
}

// files returns the sockets that worker processes inherit, from proc.FirstFile on, and numbers
// their descriptors by runner.
func (g *generation) files() (files []*os.File, numbers map[string]int) {
	for i, t := range g.templates {
		if numbers == nil {
			numbers = map[string]int{}
		}
		files, numbers[g.names[i]] = append(files, t.Requests()), proc.FirstFile+i
	}
	return files, numbers
}

// booted waits until all are ready. It fails at the first failure of one.
func (g *generation) booted(ctx context.Context) error {
	for _, t := range g.templates {
		if err := t.Booted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// retire makes the templates end after the worker processes that have inherited their sockets.
func (g *generation) retire() {
	for _, t := range g.templates {
		t.Retire()
	}
}

func (g *generation) stop() {
	var ends sync.WaitGroup
	for _, t := range g.templates {
		ends.Go(t.Stop)
	}
	ends.Wait()
}

// templates are a daemon's templates: for the configuration in force, for one on trial, and for
// earlier ones whose worker processes finish.
type templates struct {
	mu   sync.Mutex
	now  *generation
	past []*generation
	// drops are the ends of generations that were refused.
	drops sync.WaitGroup
}

func (t *templates) use(g *generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.now
	t.now = g
	// Drop those that have ended.
	t.past = slices.DeleteFunc(t.past, func(g *generation) bool {
		return !slices.ContainsFunc(g.templates, func(t *template.Template) bool { return t.Info().State != template.Ended })
	})
	if old != nil {
		old.retire()
		t.past = append(t.past, old)
	}
}

func (t *templates) drop(g *generation) { t.drops.Go(g.stop) }

func (t *templates) stop() {
	t.mu.Lock()
	all := append(slices.Clone(t.past), t.now)
	t.mu.Unlock()
	var ends sync.WaitGroup
	for _, g := range all {
		if g != nil {
			ends.Go(g.stop)
		}
	}
	ends.Wait()
	t.drops.Wait()
}

func (t *templates) infos() (all []template.Info) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range append([]*generation{t.now}, t.past...) {
		if g == nil {
			continue
		}
		for _, template := range g.templates {
			all = append(all, template.Info())
		}
	}
	return slices.DeleteFunc(all, func(i template.Info) bool { return i.State == template.Ended })
}

// trouble names the templates that are not ready, in one line; "" = none.
func (t *templates) trouble() string {
	var parts []string
	for _, i := range t.infos() {
		switch i.State {
		case template.Booting:
			parts = append(parts, fmt.Sprintf("booting runner %s for %s", i.Runner, time.Since(i.Since).Round(time.Second)))
		case template.Failed:
			why, _, _ := strings.Cut(i.Why, "\n")
			parts = append(parts, fmt.Sprintf("runner %s does not boot: %s", i.Runner, strings.TrimSuffix(why, "; the end of its stderr:")))
		}
	}
	return strings.Join(parts, ", ")
}

// fields are the fields of the master's entry in Redis that show the templates.
func (t *templates) fields() map[string]string {
	all := t.infos()
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return map[string]string{store.FieldTemplates: string(text)}
}

// waitForTemplates waits until the templates of the first generation are ready. stopped: a
// signal asked the daemon to end.
func waitForTemplates(ctx context.Context, t *templates, relay *relay, notifier *announcer, log *zap.Logger) (stopped bool, err error) {
	return whileStarting(ctx, "runners", relay, log, func(ctx context.Context) error {
		told := make(chan struct{})
		defer close(told)
		go func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-told:
					return
				case <-tick.C:
					notifier.waits("booting runners", t.trouble(), 30*time.Second)
				}
			}
		}()
		return t.now.booted(ctx)
	})
}
