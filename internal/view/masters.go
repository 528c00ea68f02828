package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/wire"
)

// Master is a living master of resqued, to which orders can be sent.
type Master struct {
	// ID is unique for ever; Name is host:pid.
	ID, Name, Host string
	State          string
	// Orders says that its version takes orders.
	Orders bool
	// Procs are its worker processes, except those that are leaving or run a suspect.
	Procs []string
	// names are other names of worker processes: host:pid and the process id.
	names map[string]string
}

// Ordered is what an order goes to: a master or one of its worker processes.
type Ordered struct {
	*Master
	// Proc is the worker process; empty = the master.
	Proc string
}

// NotOursError is returned for the name of a foreign worker.
type NotOursError struct{ Worker string }

func (e *NotOursError) Error() string {
	return fmt.Sprintf("%q is a worker of Ruby's Resque or of another program, which takes no orders", e.Worker)
}

// Masters returns the living masters by name.
func Masters(ctx context.Context, s *store.Store) ([]*Master, error) {
	entries, err := s.MasterList(ctx)
	if err != nil {
		return nil, err
	}
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[string]*Master{}
	list := make([]*Master, 0, len(entries))
	for id, fields := range entries {
		m := &Master{ID: id, Name: masterName(id), Host: fields["host"], State: fields["state"], Orders: fields[store.FieldOrders] != "", names: map[string]string{}}
		if self, err := proc.ParseIdentity(id); err == nil {
			m.Host = self.Host
		}
		byID[id], list = m, append(list, m)
	}
	for _, p := range procs {
		m := byID[masterOf(p.Proc)]
		if m == nil {
			continue
		}
		m.names[p.Proc] = p.Proc
		m.names[m.Host+":"+p.Fields["pid"]] = p.Proc
		if state := p.Fields["state"]; p.Fields[store.InfoAlone] == "" && state != "retiring" && state != "draining" && state != "killing" {
			m.Procs = append(m.Procs, p.Proc)
		}
	}
	slices.SortFunc(list, func(a, b *Master) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return list, nil
}

// FindOrdered returns what names match, each once: all masters of a host, or a master or worker
// process by host:pid or id. The error is a NotFoundError or a NotOursError.
func FindOrdered(ctx context.Context, s *store.Store, masters []*Master, names []string) ([]Ordered, error) {
	var picked []Ordered
	add := func(o Ordered) {
		if !slices.Contains(picked, o) {
			picked = append(picked, o)
		}
	}
	for _, name := range names {
		found := false
		for _, m := range masters {
			if name == m.Host || name == m.Name || name == m.ID {
				add(Ordered{Master: m})
				found = true
			} else if p := m.names[name]; p != "" {
				add(Ordered{Master: m, Proc: p})
				found = true
			}
		}
		if found {
			continue
		}
		workers, err := s.WorkerList(ctx)
		if err != nil {
			return nil, err
		}
		var known []string
		for _, w := range workers {
			id, err := wire.ParseWorkerID(w.ID)
			if err == nil && !id.Ours && (w.ID == name || id.Host == name || fmt.Sprintf("%s:%d", id.Host, id.PID) == name) {
				return nil, &NotOursError{w.ID}
			}
		}
		for _, m := range masters {
			known = append(known, m.Host, m.Name)
		}
		return nil, &NotFoundError{Kind: "living master or worker process", Name: name, Known: known}
	}
	return picked, nil
}
