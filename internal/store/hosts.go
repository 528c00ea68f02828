package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	silentHostsScript = rdb.NewScript(Lua, "silent_hosts", "lib/base", "lib/grace", "lib/hosts", "silent_hosts")
	hostVerdictScript = rdb.NewScript(Lua, "host_verdict", "lib/base", "lib/hosts", "lib/format", "host_verdict")
)

// MasterTTL is how long a master's entry lives after a renewal, which comes about every five seconds. The rest of
// its life reveals the age of the last renewal.
const MasterTTL = 30 * time.Second

// Fields of a worker process's entry that tell how long it has been silent, and identify its host.
const (
	infoLease = "lease_ms"
	infoBeat  = "beat_ms"
	// InfoBootID is the kernel's boot id, InfoAddress the address in Redis's network.
	InfoBootID  = "boot_id"
	InfoAddress = "address"
)

// Host is a host or container, since its boot, with registered worker processes.
type Host struct {
	// Place is its name, a colon and its boot, as in the names of its processes.
	Place string
	// Last is its last sign of life by Redis's clock: a process's beat, or a renewal of a master's entry.
	Last time.Time
	// Procs is how many processes have a lease.
	Procs int
	// BootID is its kernel's boot id, Address its address in Redis's network; "" = unknown.
	BootID, Address string

	// Jobs, Ends and Silence are only set by Hosts: how many jobs are in hand, when the last lease
	// ends, and a silence longer than a working host's.
	Jobs    int
	Ends    time.Time
	Silence time.Duration
}

// Name returns the name of the host.
func (h Host) Name() string { return strings.TrimSuffix(h.Place, ":"+h.Boot()) }

// Boot returns the part of Place for its boot.
func (h Host) Boot() string { return h.Place[strings.LastIndexByte(h.Place, ':')+1:] }

// SilentRequest asks for silent hosts.
type SilentRequest struct {
	// Place is the caller's, which is skipped.
	Place string
	// After is the silence without a sign of life; 0 = two and a half of their own beats.
	After time.Duration
	// Most bounds the number of hosts.
	Most int
	// Turn is the caller's unique name for the turn that it then has for For.
	Turn string
	For  time.Duration
}

// SilentHosts returns hosts without a recent sign of life whose leases have not ended. The caller then has the turn
// to find out whether they are dead; SettleHost ends it. After a silence of all processes (an outage of Redis, a
// jump of its clock), it returns none for one lease.
func (s *Store) SilentHosts(ctx context.Context, r SilentRequest) (hosts []Host, now time.Time, err error) {
	opts := s.opts.Load()
	list, err := s.db.EvalList(ctx, silentHostsScript, s.db.Key(keyProcs), []any{
		s.db.Prefix, opts.Lease.Milliseconds(), opts.BeatEvery.Milliseconds(), r.Place, r.After.Milliseconds(), MasterTTL.Milliseconds(),
		r.Most, r.For.Milliseconds(), r.Turn,
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, one := range list[1:] {
		v, _ := one.([]any)
		if len(v) != 5 {
			return nil, time.Time{}, fmt.Errorf("script silent_hosts: unexpected reply %v", list)
		}
		h := rdb.List(v)
		hosts = append(hosts, Host{Place: h.Text(0), Last: time.UnixMilli(h.Number(1)), Procs: int(h.Number(2)), BootID: h.Text(3), Address: h.Text(4)})
	}
	return hosts, time.UnixMilli(list.Number(0)), nil
}

// HostVerdict is a finding about a host.
type HostVerdict struct {
	Place string
	// Dead: proven, or a person says so. Otherwise no master asks again within Pause.
	Dead bool
	// Last is the last sign of life known to the caller. A later one proves that the host lives.
	Last time.Time
	// Turn is SilentRequest.Turn; "" = a person decides.
	Turn  string
	Pause time.Duration
}

// The values of HostOutcome.Outcome.
const (
	HostFenced  = "OK"
	HostAlive   = "ALIVE" // it has since given a sign of life
	HostUnknown = "GONE"  // none of its processes has a lease
	HostNotOurs = "LOST"  // the caller does not have the turn
)

// HostOutcome is the result of SettleHost.
type HostOutcome struct {
	Outcome string
	// Procs are the processes whose leases were ended; any master recovers their jobs. Left is how many
	// processes write in a format that this program does not read, and keep their leases.
	Procs []string
	Left  int
	// Last is the sign of life that proves that it lives.
	Last time.Time
}

// SettleHost applies a verdict. A dead host's processes are fenced: if it lives after all, they end with their next
// call, which changes nothing.
func (s *Store) SettleHost(ctx context.Context, v HostVerdict) (HostOutcome, error) {
	list, err := s.db.EvalList(ctx, hostVerdictScript, s.db.Key(keyProcs), []any{
		s.db.Prefix, v.Place, rdb.Flag(v.Dead), v.Last.UnixMilli(), MasterTTL.Milliseconds(), v.Turn, v.Pause.Milliseconds(),
		rdb.Known().Oldest, rdb.Known().Newest,
	}, 1, 2, 3)
	if err != nil {
		return HostOutcome{}, err
	}
	o := HostOutcome{Outcome: list.Text(0)}
	switch {
	case o.Outcome == HostFenced && len(list) == 3:
		o.Procs, o.Left = list.Texts(1), int(list.Number(2))
		slices.Sort(o.Procs)
	case o.Outcome == HostAlive && len(list) == 2:
		o.Last = time.UnixMilli(list.Number(1))
	case len(list) != 1:
		return HostOutcome{}, fmt.Errorf("script host_verdict: unexpected reply %v", list)
	}
	return o, nil
}

// OwnAddress returns this machine's address in Redis's network, as its connections show it; "" without a connection
// yet, or if Redis is on this machine.
func (s *Store) OwnAddress() string { return s.db.OwnAddress() }

// Hosts returns the hosts with worker processes that have a lease, by name, and the server's time.
func (s *Store) Hosts(ctx context.Context) (hosts []Host, now time.Time, err error) {
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, now, err
	}
	if now, err = s.db.Read.Time(ctx).Result(); err != nil {
		return nil, now, fmt.Errorf("ask for the time: %w", err)
	}
	at, masters := map[string]*Host{}, map[string]*redis.DurationCmd{}
	pipe := s.db.Read.Pipeline()
	for _, p := range procs {
		master, place, ok := cutProc(p.Proc)
		if !ok || p.LeaseMS == 0 {
			continue
		}
		h := at[place]
		if h == nil {
			h = &Host{Place: place}
			at[place] = h
		}
		lease, beat := fieldMS(p.Fields[infoLease], DefaultLease), fieldMS(p.Fields[infoBeat], DefaultBeatEvery)
		ends := time.UnixMilli(p.LeaseMS)
		h.sign(ends.Add(-lease), now)
		h.Ends, h.Silence = later(h.Ends, ends), max(h.Silence, beat*3/2)
		h.Procs, h.Jobs = h.Procs+1, h.Jobs+len(p.Running)
		h.BootID, h.Address = cmp.Or(h.BootID, p.Fields[InfoBootID]), cmp.Or(h.Address, p.Fields[InfoAddress])
		if masters[master] == nil {
			masters[master] = pipe.PTTL(ctx, s.db.Key(keyMaster)+master)
		}
	}
	_ = told(pipe.Exec(ctx))
	for master, left := range masters {
		ttl, err := left.Result()
		if err != nil {
			return nil, now, fmt.Errorf("read master %q: %w", master, err)
		}
		if place := master[:strings.LastIndexByte(master, ':')]; ttl > 0 {
			at[place].sign(now.Add(-max(0, MasterTTL-ttl)), now)
		}
	}
	for _, h := range at {
		hosts = append(hosts, *h)
	}
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Place, b.Place) })
	return hosts, now, nil
}

func (h *Host) sign(at, now time.Time) {
	if at.After(now) {
		at = now
	}
	h.Last = later(h.Last, at)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// cutProc returns the master and the place in a process's name.
func cutProc(proc string) (master, place string, ok bool) {
	i := strings.LastIndexByte(proc, ':')
	if i < 0 {
		return "", "", false
	}
	j := strings.LastIndexByte(proc[:i], ':')
	if j < 0 {
		return "", "", false
	}
	return proc[:i], proc[:j], true
}

func fieldMS(text string, otherwise time.Duration) time.Duration {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 && ms < 1<<40 {
		return time.Duration(ms) * time.Millisecond
	}
	return otherwise
}
