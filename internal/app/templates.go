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

// generation holds the templates of one reading of the configuration. A reload boots others beside
// them, with the code as it is then.
type generation struct {
	names     []string
	templates []*template.Template
}

// bootTemplates starts the templates of the runners that handlers name.
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
			Runner: name, Argv: r.Command, Dir: r.Dir, Env: append(program.Scrub(os.Environ(), envRules(c)), runnerEnv(r)...), Concurrency: r.Concurrency, BootTimeout: r.BootTimeout, Log: log,
		})
		if err != nil {
			g.stop()
			return nil, err
		}
		g.names, g.templates = append(g.names, name), append(g.templates, t)
	}
	return g, nil
}

// files returns the sockets that worker processes inherit, from proc.FirstFile on, and numbers which
// is whose.
func (g *generation) files() (files []*os.File, numbers map[string]int) {
	for i, t := range g.templates {
		if numbers == nil {
			numbers = map[string]int{}
		}
		files, numbers[g.names[i]] = append(files, t.Requests()), proc.FirstFile+i
	}
	return files, numbers
}

// booted waits until all are ready. It fails when one has failed for the first time.
func (g *generation) booted(ctx context.Context) error {
	for _, t := range g.templates {
		if err := t.Booted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// retire lets them end when the worker processes that have inherited their sockets have.
func (g *generation) retire() {
	for _, t := range g.templates {
		t.Retire()
	}
}

// stop ends them.
func (g *generation) stop() {
	var ends sync.WaitGroup
	for _, t := range g.templates {
		ends.Go(t.Stop)
	}
	ends.Wait()
}

// templates are those of a daemon: of the configuration in force, of one that is tried, and of those
// before, whose worker processes finish.
type templates struct {
	mu   sync.Mutex
	now  *generation
	past []*generation
	// drops are the ends of those that were not taken.
	drops sync.WaitGroup
}

// use puts a generation into force.
func (t *templates) use(g *generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.now
	t.now = g
	// Those that have ended need not be remembered.
	t.past = slices.DeleteFunc(t.past, func(g *generation) bool {
		return !slices.ContainsFunc(g.templates, func(t *template.Template) bool { return t.Info().State != template.Ended })
	})
	if old != nil {
		old.retire()
		t.past = append(t.past, old)
	}
}

// drop ends a generation that is not taken, and does not wait for it.
func (t *templates) drop(g *generation) { t.drops.Go(g.stop) }

// stop ends all.
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

// infos returns what the templates do, those of the configuration in force first.
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

// trouble says which templates are not ready, in one line; "" if all are.
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

// fields are those of the master's entry in Redis that show them.
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

// waitForTemplates waits until the templates of the first generation are ready. Stopped reports that a
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
					proc.SetTitle(proc.TitleOf + "master: booting runners")
					trouble := t.trouble()
					notifier.Status(trouble)
					if elder := notifier.d.Elder; elder != nil {
						elder.Failed(trouble) // if it waits no longer, it knows why
					}
					notifier.ExtendTimeout(30 * time.Second)
				}
			}
		}()
		return t.now.booted(ctx)
	})
}
