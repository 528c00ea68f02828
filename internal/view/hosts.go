package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// States of a host.
const (
	HostAlive  = "alive"
	HostSilent = "silent" // its last heartbeat is older than a working host's ever is
	HostEnded  = "ended"  // the leases of all its processes have expired: any master recovers their jobs
)

// Host is one boot of a host or container on which worker processes are registered.
type Host struct {
	Host string `json:"host"`
	// Boot identifies its boot and its pid and time namespaces.
	Boot  string `json:"boot"`
	State string `json:"state"`
	// Processes is how many have a lease, Jobs how many jobs they hold.
	Processes int `json:"processes"`
	Jobs      int `json:"jobs"`
	// SilentS is the age of its last heartbeat, EndsInS the time to the end of its last lease.
	SilentS int64 `json:"silent_s"`
	EndsInS int64 `json:"ends_in_s"`
	// Address is its address in Redis's network, BootID its kernel's boot id; empty = unknown.
	Address string `json:"address"`
	BootID  string `json:"boot_id"`

	// Place is its name in the store, Last its heartbeat by Redis's clock, Patience HostSilent's
	// limit.
	Place    string        `json:"-"`
	Last     time.Time     `json:"-"`
	Silent   time.Duration `json:"-"`
	Patience time.Duration `json:"-"`
}

// Hosts returns the hosts on which resqued's worker processes are registered.
func Hosts(ctx context.Context, s *store.Store) ([]*Host, error) {
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

// FindHosts returns the hosts with the given names, each alone or with its boot, "web-1:0123abcd".
// A name may match several: containers, or earlier boots.
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
