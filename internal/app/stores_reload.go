package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/control"
	"github.com/resqued/resqued/internal/signals"
)

const (
	// storeAnswers is how long a master may take to say how it is.
	storeAnswers = 2 * time.Second
	// storeReloads is how long it may take to change: it has a limit of its own, below that.
	storeReloads = 75 * time.Second
	// storeMoves is how often a master that hands over meanwhile is asked anew.
	storeMoves = 50
)

// storeRequest is what this daemon is asked for on its control socket.
type storeRequest struct {
	do     string
	answer func(control.Reply)
}

// storeReread is a reload that goes on.
type storeReread struct {
	under bool
	// asked wait for what goes on, next for what comes then.
	asked, next []storeRequest
	again       string // what to do then; "" = nothing
}

// storePlanned is a plan that was read, or what has become of a reload.
type storePlanned struct {
	do    string
	plans []StorePlan
	err   error
	// tried: each master that could be asked has a worker process with the new configuration.
	// untried are those of an older version, which cannot.
	tried   bool
	untried []*storeMaster
	// done: the masters have answered; away are those that could not be asked.
	done    bool
	ok      bool
	text    string
	restart []*storeMaster
}

// requested takes a request.
func (s *Stores) requested(r storeRequest) {
	switch {
	case r.do == control.Status:
		go s.report(r.answer)()
	case s.leaving():
		r.answer(control.Reply{Text: errStopping.Error()})
	default:
		s.reread.next = append(s.reread.next, r)
		s.reload(r.do)
	}
}

// reload begins a reload or an upgrade, or remembers it while one goes on.
func (s *Stores) reload(do string) {
	if s.leaving() {
		return
	}
	if s.reread.under {
		if s.reread.again != control.Upgrade {
			s.reread.again = do
		}
		return
	}
	s.reread.under = true
	s.reread.asked, s.reread.next = s.reread.next, nil
	if s.readied { // else the READY=1 that ends a reload would be taken for the end of the start
		s.notifier.Reloading()
	}
	go func() {
		plans, err := s.plan()
		s.planned <- storePlanned{do: do, plans: plans, err: err}
	}()
}

// plan reads which stores there are; by the program that is on disk, if it is another one.
func (s *Stores) plan() ([]StorePlan, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	plans, err := s.Plan(ctx)
	if err == nil && len(plans) == 0 {
		err = errors.New("the configuration has no stores any more: restart the daemon")
	}
	return plans, err
}

// onPlan carries out a plan, and later takes what the masters have answered.
func (s *Stores) onPlan(_ context.Context, p storePlanned) {
	switch {
	case s.leaving():
		return
	case p.err != nil:
		s.Log.Error("the new configuration cannot be used; the old one stays", zap.Error(p.err))
		s.reloaded(control.Reply{Text: p.err.Error()})
		return
	case !p.tried && !p.done && p.do == control.Reload:
		go s.try(p, s.kept(p.plans))
		return
	case p.done:
		for _, m := range p.restart {
			switch {
			case len(m.pids) == 0 || m.leaving:
			case m.ready: // by now: until its jobs had ended a drain would leave the store without any
				m.wants = append(m.wants, syscall.SIGHUP)
			default: // it waits for its Redis, with the old configuration, and has no worker process
				m.again = true
				m.wants = append(m.wants, syscall.SIGQUIT)
			}
		}
		s.reloaded(control.Reply{OK: p.ok, Text: p.text})
		return
	}
	var lines []string
	kept := s.kept(p.plans)
	ok := true
	for _, m := range s.masters {
		if !m.leaving && !slices.Contains(kept, m) {
			i := slices.IndexFunc(p.plans, func(one StorePlan) bool { return one.Name == m.plan.Name })
			what := "is no more: its jobs in hand finish"
			if i >= 0 {
				what = "has another server or namespace: jobs of the one before finish"
			}
			lines = append(lines, m.plan.Name+": "+what)
			m.leaving = true
			m.startAt = time.Time{}
			m.wants = append(m.wants, syscall.SIGQUIT)
		}
	}
	for _, one := range p.plans {
		if slices.ContainsFunc(kept, func(m *storeMaster) bool { return m.plan.Name == one.Name }) {
			continue
		}
		if err := s.add(one); err != nil {
			ok = false
			lines = append(lines, one.Name+": "+err.Error())
			continue
		}
		lines = append(lines, one.Name+": its master is started")
	}
	go s.askAll(p, kept, ok, lines)
}

// kept returns the masters of the stores that stay at their place.
func (s *Stores) kept(plans []StorePlan) (all []*storeMaster) {
	for _, m := range s.masters {
		if !m.leaving && slices.Contains(plans, m.plan) {
			all = append(all, m)
		}
	}
	return all
}

// try has the masters try the new configuration. If one refuses it, it takes effect in none.
func (s *Stores) try(p storePlanned, kept []*storeMaster) {
	replies, errs := make([]control.Reply, len(kept)), make([]error, len(kept))
	paths := make([]string, len(kept))
	for i, m := range kept {
		paths[i] = m.controlPath()
	}
	each := func(do string, patience time.Duration, which func(i int) bool) {
		var all sync.WaitGroup
		for i, path := range paths {
			if which(i) {
				all.Go(func() { replies[i], errs[i] = askMaster(path, do, patience) })
			}
		}
		all.Wait()
	}
	each(control.Try, storeReloads, func(int) bool { return true })
	// One that waits for its Redis cannot be asked, and begins with it.
	refused := func(i int) bool {
		return errs[i] == nil && !replies[i].OK || errs[i] != nil && !errors.Is(errs[i], control.ErrNoDaemon)
	}
	var lines []string
	for i, m := range kept {
		switch {
		case errs[i] == nil && replies[i].Text == control.Unknown:
			p.untried = append(p.untried, m)
		case !refused(i):
		case errs[i] != nil:
			lines = append(lines, m.plan.Name+": "+whyNoAnswer(paths[i], errs[i]))
		default:
			lines = append(lines, m.plan.Name+": refused: "+replies[i].Text)
		}
	}
	if len(lines) == 0 {
		p.tried = true
		s.planned <- p
		return
	}
	for i, m := range kept {
		if !refused(i) || slices.Contains(p.untried, m) {
			lines = append(lines, m.plan.Name+": keeps the configuration that it has, as another store has refused the new one")
		}
	}
	each(control.Drop, storeAnswers, func(i int) bool { return errs[i] == nil && replies[i].OK })
	slices.Sort(lines)
	s.planned <- storePlanned{done: true, text: strings.Join(lines, "\n")}
}

// askAll has the masters reload, and delivers what has become of it.
func (s *Stores) askAll(p storePlanned, kept []*storeMaster, ok bool, lines []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var restart []*storeMaster
	for _, m := range kept {
		name, path, do := m.plan.Name, m.controlPath(), p.do
		if p.tried && !slices.Contains(p.untried, m) {
			do = control.Take
		}
		all.Go(func() {
			reply, err := askMaster(path, do, storeReloads)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, control.ErrNoDaemon):
				restart = append(restart, m)
				lines = append(lines, name+": it has not worked yet, and begins with the new configuration")
			case err != nil:
				ok = false
				lines = append(lines, name+": "+whyNoAnswer(path, err))
			case !reply.OK:
				ok = false
				lines = append(lines, name+": refused: "+reply.Text)
			default:
				lines = append(lines, name+": "+reply.Text)
			}
		})
	}
	all.Wait()
	slices.Sort(lines)
	s.planned <- storePlanned{done: true, ok: ok, text: strings.Join(lines, "\n"), restart: restart}
}

// askMaster asks the master that listens at a path, or the one that has taken over from it.
func askMaster(path, do string, patience time.Duration) (control.Reply, error) {
	reply, err := control.Ask(path, do, patience)
	for try := 0; err == nil && reply.Elsewhere && try < storeMoves; try++ {
		<-time.After(100 * time.Millisecond)
		reply, err = control.Ask(path, do, patience)
	}
	return reply, err
}

// whyNoAnswer says why a master that was asked for a reload has not answered: that its Redis is away, if it is.
func whyNoAnswer(path string, err error) string {
	if errors.Is(err, control.ErrNoAnswer) {
		if now, err := askMaster(path, control.Status, storeAnswers); err == nil && now.Outage != "" {
			return "no worker process is ready with the new configuration: " + now.Outage
		}
	}
	return err.Error()
}

// reloaded ends a reload.
func (s *Stores) reloaded(r control.Reply) {
	s.reread.under = false
	if s.readied {
		s.notifier.Ready()
	}
	for line := range strings.SplitSeq(r.Text, "\n") {
		if r.OK {
			s.Log.Info("reloaded", zap.String("store", line))
		} else {
			s.Log.Error("reload", zap.String("because", line))
		}
	}
	for _, one := range s.reread.asked {
		one.answer(r)
	}
	s.reread.asked = nil
	if do := s.reread.again; do != "" {
		s.reread.again = ""
		s.reload(do)
	}
}

// answerAll answers all who wait.
func (s *Stores) answerAll(r control.Reply) {
	for _, one := range append(s.reread.asked, s.reread.next...) {
		one.answer(r)
	}
	s.reread.asked, s.reread.next = nil, nil
}

// report returns what finds out how the stores are, and answers that; it runs beside the loop.
func (s *Stores) report(answer func(control.Reply)) func() {
	reply := control.Reply{OK: true, State: string(s.state)}
	if s.state == signals.Running && s.paused {
		reply.State = string(signals.Paused)
	}
	reply.Stores = make([]control.StoreReply, len(s.masters))
	paths := make([]string, len(s.masters))
	for i, m := range s.masters {
		reply.Stores[i] = control.StoreReply{Store: m.plan.Name, State: string(signals.Starting), PID: m.pid, Text: m.status, Leaving: m.leaving}
		if len(m.pids) > 0 {
			paths[i] = m.controlPath()
		} else {
			reply.Stores[i].State, reply.Stores[i].PID = "ended", 0
		}
	}
	return func() {
		var all sync.WaitGroup
		for i, path := range paths {
			one := &reply.Stores[i]
			one.Outage = one.Text
			if path == "" {
				continue
			}
			all.Go(func() {
				r, err := askMaster(path, control.Status, storeAnswers)
				switch {
				case errors.Is(err, control.ErrNoDaemon): // it waits for its Redis
				case err != nil:
					one.Outage = err.Error()
				default:
					one.State, one.Ready, one.Outage, one.Trouble, one.Text, one.PID, one.Version = r.State, r.Ready, r.Outage, r.Trouble, r.Text, r.PID, r.Version
				}
			})
		}
		all.Wait()
		var away, text []string
		for _, one := range reply.Stores {
			reply.Ready += one.Ready
			line := fmt.Sprintf("%s: %s", one.Store, one.Text)
			if one.Outage != "" && !one.Leaving {
				away = append(away, fmt.Sprintf("store %s: %s", one.Store, one.Outage))
			}
			text = append(text, line)
		}
		reply.Outage, reply.Text = strings.Join(away, "; "), strings.Join(text, "; ")
		answer(reply)
	}
}

// storesControl is the control socket of a daemon with several stores.
type storesControl struct {
	stores *Stores
	server *control.Server
	end    chan struct{}
}

func (c *storesControl) listen() {
	s := c.stores
	path, err := s.ControlSocket, error(nil)
	if path == "" {
		path, err = ControlPlaces().Own(os.Getpid())
	}
	if err == nil {
		if control.Taken(path) {
			s.Log.Warn(socketTaken, zap.String("path", path))
		}
		c.end = make(chan struct{})
		c.server, err = control.Listen(path, c.answer)
	}
	if err != nil {
		s.Log.Warn("there is no control socket: \"reload\" and \"upgrade\" do not reach this daemon, HUP does", zap.Error(err))
	}
}

func (c *storesControl) close() {
	if c.server != nil {
		close(c.end)
		c.server.Close()
	}
}

func (c *storesControl) answer(ctx context.Context, r control.Request) control.Reply {
	reply := control.Reply{}
	switch r.Do {
	case control.Reload, control.Upgrade, control.Status:
		answers := make(chan control.Reply, 1)
		reply.Text = "the daemon has ended"
		select {
		case c.stores.requests <- storeRequest{do: r.Do, answer: func(r control.Reply) {
			select {
			case answers <- r:
			default: // it was answered
			}
		}}:
			select {
			case reply = <-answers:
			case <-ctx.Done():
			case <-c.end:
				select {
				case reply = <-answers:
				default:
				}
			}
		case <-ctx.Done():
		case <-c.end:
		}
	case control.Drain:
		reply = drainSelf(reply)
	default:
		reply.Text = control.Unknown
	}
	reply.PID, reply.Version = os.Getpid(), c.stores.Version
	return reply
}
