package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// The states of a host.
const (
	HostAlive  = "alive"
	HostSilent = "silent" // it has given no sign of life for longer than one that works ever does
	HostEnded  = "ended"  // the leases of all its processes are past: any master recovers their jobs
)

// Host is a host, or a container, since its boot, on which worker processes are registered.
type Host struct {
	Host string `json:"host"`
	// Boot stands for its boot, and its namespaces of processes and times.
	Boot  string `json:"boot"`
	State string `json:"state"`
	// Processes have a lease, and hold so many jobs.
	Processes int `json:"processes"`
	Jobs      int `json:"jobs"`
	// SilentS is how many seconds ago it gave its last sign of life, EndsInS when its last lease ends, in seconds.
	SilentS int64 `json:"silent_s"`
	EndsInS int64 `json:"ends_in_s"`
	// Address is its address in the network of Redis, BootID that of its kernel; empty = not known.
	Address string `json:"address"`
	BootID  string `json:"boot_id"`

	// Place names it in the store, Last is its last sign of life, both by Redis's clock. Patience is
	// after how long a silence it is HostSilent.
	Place    string        `json:"-"`
	Last     time.Time     `json:"-"`
	Silent   time.Duration `json:"-"`
	Patience time.Duration `json:"-"`
}

// HostStore is what is asked for hosts.
type HostStore interface {
	Hosts(ctx context.Context) (hosts []store.Host, now time.Time, err error)
}

// Hosts returns the hosts on which worker processes of resqued are registered.
func Hosts(ctx context.Context, s HostStore) ([]*Host, error) {
	list, now, err := s.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	hosts := make([]*Host, len(list))
	for i, h := range list {
		v := &Host{
			Host: h.Name(), Boot: h.Boot(), State: HostAlive, Processes: h.Procs, Jobs: h.Jobs, Silent: max(0, now.Sub(h.Last)),
			EndsInS: seconds(h.Ends.Sub(now)), Address: h.Address, BootID: h.BootID, Place: h.Place, Last: h.Last, Patience: h.Silence,
		}
		v.SilentS = seconds(v.Silent)
		switch {
		case h.Ends.Before(now):
			v.State = HostEnded
		case v.Silent >= h.Silence:
			v.State = HostSilent
		}
		hosts[i] = v
	}
	return hosts, nil
}

// FindHosts returns those that are named, by their name alone or with their boot, "web-1:0123abcd". Of one name there may be
// several: containers, and what was there before the host has booted again.
func FindHosts(hosts []*Host, names []string) (found []*Host, err error) {
	for _, name := range names {
		before := len(found)
		for _, h := range hosts {
			if (h.Host == name || h.Place == name) && !slices.Contains(found, h) {
				found = append(found, h)
			}
		}
		if len(found) == before && !slices.ContainsFunc(found, func(h *Host) bool { return h.Host == name || h.Place == name }) {
			var known []string
			for _, h := range hosts {
				known = append(known, h.Host)
			}
			slices.SortFunc(known, strings.Compare)
			return nil, &NotFoundError{Kind: "host", Name: name, Known: slices.Compact(known)}
		}
	}
	return found, nil
}
