package master

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

const (
	// tellEvery is the shortest time between changes of title and status.
	tellEvery = time.Second
	// extendEvery and extension: a drain asks the service manager for more time.
	extendEvery = 5 * time.Second
	extension   = 20 * time.Second
)

type told struct {
	text             string
	state            signals.State
	at               time.Time
	extended, pinged time.Time
}

// tell updates the process title and the service manager. Only the loop calls it, so a hung loop
// stops the watchdog's signs of life.
func (m *Master) tell() {
	outage := m.outage()
	if outage != "" {
		m.due(m.now.Add(tellEvery)) // the duration in the text changes
	}
	if text := m.status(outage); text != m.told.text && (m.state != m.told.state || m.due(m.told.at.Add(tellEvery))) {
		m.told.text, m.told.state, m.told.at = text, m.state, m.now
		m.d.System.SetTitle(proc.TitleOf + "master: " + text)
		m.d.Notifier.Status(text)
	}
	if m.watchdog > 0 && m.every(&m.told.pinged, m.watchdog/3) {
		m.d.Notifier.Watchdog()
	}
	if (m.state == signals.Draining || m.leaving() && m.taking != nil) && m.every(&m.told.extended, extendEvery) {
		m.d.Notifier.ExtendTimeout(extension)
	}
}

// every reports whether d has passed since it last returned true.
func (m *Master) every(last *time.Time, d time.Duration) bool {
	if !last.IsZero() && !m.due(last.Add(d)) {
		return false
	}
	*last = m.now
	m.due(m.now.Add(d))
	return true
}

func (m *Master) status(outage string) string {
	n := m.count()
	parts := []string{string(m.state)}
	if outage != "" {
		parts[0] = outage + "; " + parts[0]
	}
	if m.d.Trouble != nil {
		if trouble := m.d.Trouble(); trouble != "" {
			parts[0] = trouble + "; " + parts[0]
			m.due(m.now.Add(tellEvery)) // the duration in the text changes
		}
	}
	if m.state == signals.Starting {
		parts = append(parts, fmt.Sprintf("%d of %d workers ready", n.ready, m.cfg.Slots))
		return strings.Join(parts, ", ")
	}
	workers := plural(n.ready, "worker")
	if n.ready < m.cfg.Slots && !m.leaving() {
		workers = fmt.Sprintf("%d of %s", n.ready, plural(m.cfg.Slots, "worker"))
	}
	parts = append(parts, workers)
	if n.paused > 0 {
		parts = append(parts, fmt.Sprintf("%d of them paused", n.paused))
	}
	if n.running > 0 {
		parts = append(parts, fmt.Sprintf("%d of them running", n.running))
	}
	if n.retiring > 0 && !m.leaving() {
		parts = append(parts, fmt.Sprintf("%d retiring", n.retiring))
	}
	if n.alone > 0 {
		parts = append(parts, plural(n.alone, "suspect")+" apart")
	}
	if text := m.takingText(); text != "" {
		parts = append(parts, text)
	}
	if m.roll != nil {
		parts = append(parts, fmt.Sprintf("reloading %d/%d", n.current, len(m.slots)))
	}
	parts = append(parts,
		fmt.Sprintf("%d/%d busy", n.busy, m.cfg.Slots*m.cfg.Threads),
		grouped(n.done)+" done")
	text := strings.Join(parts, ", ")
	if m.refused != "" {
		text += "; reload refused: " + m.refusal()
	}
	return text
}

type counts struct {
	ready, retiring, busy, done int
	// alone are processes for one suspect each; nothing else counts them.
	alone int
	// paused are processes paused by a signal of their own while this master runs; running are
	// those resumed by one while this master is paused.
	paused, running int
	// current run the configuration being rolled out.
	current int
}

func (m *Master) count() counts {
	n := counts{done: m.done}
	for w := range m.workers {
		n.done += w.health.beat.Done
		if w.suspect != nil {
			n.alone++
			continue
		}
		n.busy += w.health.beat.Busy
		if m.roll != nil && w.gen == m.roll.gen && !w.readyAt.IsZero() {
			n.current++
		}
		switch {
		case w.leaves.stage == retired && !m.leaving():
			n.retiring++
		case w.ahead:
		case !w.readyAt.IsZero():
			n.ready++
			switch said := signals.State(w.health.beat.State); {
			case m.state == signals.Running && said == signals.Paused:
				n.paused++
			case m.state == signals.Paused && said == signals.Running:
				n.running++
			}
		}
	}
	return n
}

// askRound makes the recoverer look around and show this master in Redis, and the repairer check
// the unique queues.
func (m *Master) askRound() {
	n := m.count()
	fields := map[string]string{
		"host": m.d.Self.Host, "pid": strconv.Itoa(m.d.Self.PID),
		"state": m.shown(), "slots": strconv.Itoa(m.cfg.Slots), "threads": strconv.Itoa(m.cfg.Threads),
		"ready": strconv.Itoa(n.ready), "busy": strconv.Itoa(n.busy), "done": strconv.Itoa(n.done), store.FieldOrders: "1",
		store.FieldEnds: m.ends.String(),
	}
	maps.Copy(fields, m.cfg.Fields)
	if m.d.Fields != nil {
		maps.Copy(fields, m.d.Fields())
	}
	if s := m.cfg.Shared; s.Digest != "" {
		fields["shared"], fields["settings"] = s.Digest, s.Text
	}
	r := &round{
		info:   store.MasterInfo{ID: m.d.Self.String(), Fields: fields, TTL: masterTTL, Answers: m.recentAnswers()},
		policy: m.deathPolicy(), shared: m.cfg.Shared,
		mine: map[string]bool{}, unrecovered: map[string]bool{},
	}
	for name := range m.unrecovered {
		r.unrecovered[name] = true
	}
	for w := range m.workers {
		r.mine[w.proc] = true
	}
	m.round = r // replaces a round that was not taken yet
	m.repairer.ask(m.cfg.Unique)
}

func (m *Master) shown() string {
	if m.given() && !m.leaving() {
		return "handed over"
	}
	return string(m.state)
}

// nextRound is the round to offer to the recoverer; a nil channel is never ready.
func (m *Master) nextRound() (chan<- round, round) {
	if m.round == nil {
		return nil, round{}
	}
	return m.recoverer.rounds, *m.round
}

// farewell removes this master from Redis. Another master, or the next one on this machine,
// recovers what is left.
func (m *Master) farewell() {
	for name, light := range m.unrecovered {
		if light {
			m.log.Warn("a worker process stays registered in redis; the next master removes it", zap.String("proc", name))
			continue
		}
		m.log.Error("the jobs of a dead worker process stay recorded in redis; the next master recovers them", zap.String("proc", name))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	lined, err := m.d.Store.DropMaster(ctx, m.d.Self.String())
	if err != nil {
		m.log.Warn("the entry of this master stays in redis until it expires", zap.Error(err))
	}
	if lined > 0 {
		m.log.Info("jobs wait in lines until a daemon of resqued runs again; for workers of other programs run: resqued queues unline QUEUE", zap.Int64("jobs", lined))
	}
	m.d.Notifier.Status("gone")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// grouped writes 1204 as 1,204.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
