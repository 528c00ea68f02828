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

// MasterTTL is how long the entry of a master lives without another renewal, of which there is one every
// five seconds or so. By what is left of it others know how old the last one is.
const MasterTTL = 30 * time.Second

// Fields of a worker process's entry by which others know how long it has been silent, and what its host is.
const (
	infoLease = "lease_ms"
	infoBeat  = "beat_ms"
	// InfoBootID is that of the kernel, InfoAddress the address in the network of Redis.
	InfoBootID  = "boot_id"
	InfoAddress = "address"
)

// Host is a host, or a container, since its boot, on which worker processes are registered.
type Host struct {
	// Place is its name and its boot, with a colon in between, as in the names of its processes.
	Place string
	// Last is its last sign of life by Redis's clock: a beat of a process, or the renewal of a
	// master's entry.
	Last time.Time
	// Procs is how many processes it has that have a lease.
	Procs int
	// BootID is that of its kernel, Address its address in the network of Redis; "" = not known.
	BootID, Address string

	// What only Hosts tells: how many jobs are in hand there, when the last lease ends, and
	// after how long a silence it is one that a host which works never keeps.
	Jobs    int
	Ends    time.Time
	Silence time.Duration
}

// Name returns the name of the host.
func (h Host) Name() string { return strings.TrimSuffix(h.Place, ":"+h.Boot()) }

// Boot returns what stands for its boot.
func (h Host) Boot() string { return h.Place[strings.LastIndexByte(h.Place, ':')+1:] }

// SilentRequest asks for hosts that are silent.
type SilentRequest struct {
	// Place is that of the caller, which is not looked at.
	Place string
	// After is for how long they have given no sign of life; 0 = two and a half of their own beats.
	After time.Duration
	// Most is how many hosts are wanted at most.
	Most int
	// It is the caller's turn then, under a name that no other caller has, for so long.
	Turn string
	For  time.Duration
}

// SilentHosts returns hosts that have given no sign of life for a while, and whose leases have not ended. Whether
// they are dead it is the caller's turn to find out; SettleHost ends the turn. There are none after
// a silence of every process (an outage of Redis, a jump of its clock), for one lease.
func (s *Store) SilentHosts(ctx context.Context, r SilentRequest) (hosts []Host, now time.Time, err error) {
	opts := s.opts.Load()
	raw, err := s.db.Eval(ctx, silentHostsScript, s.db.Key(keyProcs), []any{
		s.db.Prefix, opts.Lease.Milliseconds(), opts.BeatEvery.Milliseconds(), r.Place, r.After.Milliseconds(), MasterTTL.Milliseconds(),
		r.Most, r.For.Milliseconds(), r.Turn,
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	list, _ := raw.([]any)
	if len(list) == 0 {
		return nil, time.Time{}, fmt.Errorf("script silent_hosts: unexpected reply %v", raw)
	}
	for _, one := range list[1:] {
		v, _ := one.([]any)
		if len(v) != 5 {
			return nil, time.Time{}, fmt.Errorf("script silent_hosts: unexpected reply %v", raw)
		}
		texts := rdb.Texts(v)
		hosts = append(hosts, Host{
			Place: texts[0], Last: time.UnixMilli(rdb.Number(v[1])), Procs: int(rdb.Number(v[2])), BootID: texts[3], Address: texts[4],
		})
	}
	return hosts, time.UnixMilli(rdb.Number(list[0])), nil
}

// HostVerdict is what was found out about a host.
type HostVerdict struct {
	Place string
	// Dead: it was proven, or a person says so. Else no master asks again before Pause is over.
	Dead bool
	// Last is the last sign of life that the caller knows of. A later one shows that it lives.
	Last time.Time
	// Turn is that of SilentHosts; "" = a person says it.
	Turn  string
	Pause time.Duration
}

// What became of the verdict that a host is dead.
const (
	HostFenced  = "OK"
	HostAlive   = "ALIVE" // it has given a sign of life since
	HostUnknown = "GONE"  // no process of it has a lease
	HostNotOurs = "LOST"  // it was not the caller's turn
)

// HostOutcome is what became of a HostVerdict.
type HostOutcome struct {
	// Outcome is HostFenced, HostAlive, HostUnknown or HostNotOurs.
	Outcome string
	// Procs are the processes whose lease has ended by that; any master recovers their jobs. Left is how many
	// have written in a format that this program does not read, and keep theirs.
	Procs []string
	Left  int
	// Last is the sign of life that shows that it lives.
	Last time.Time
}

// SettleHost says what was found out about a host. If it is dead its processes are fenced: should it live all the
// same, they end with the next thing that they say, which changes nothing.
func (s *Store) SettleHost(ctx context.Context, v HostVerdict) (HostOutcome, error) {
	raw, err := s.db.Eval(ctx, hostVerdictScript, s.db.Key(keyProcs), []any{
		s.db.Prefix, v.Place, rdb.Flag(v.Dead), v.Last.UnixMilli(), MasterTTL.Milliseconds(), v.Turn, v.Pause.Milliseconds(),
		rdb.Known().Oldest, rdb.Known().Newest,
	})
	if err != nil {
		return HostOutcome{}, err
	}
	list, _ := raw.([]any)
	if len(list) == 0 {
		return HostOutcome{}, fmt.Errorf("script host_verdict: unexpected reply %v", raw)
	}
	o := HostOutcome{Outcome: rdb.Texts(list)[0]}
	switch {
	case o.Outcome == HostFenced && len(list) == 3:
		o.Procs, o.Left = rdb.Texts(list[1]), int(rdb.Number(list[2]))
		slices.Sort(o.Procs)
	case o.Outcome == HostAlive && len(list) == 2:
		o.Last = time.UnixMilli(rdb.Number(list[1]))
	case len(list) != 1:
		return HostOutcome{}, fmt.Errorf("script host_verdict: unexpected reply %v", raw)
	}
	return o, nil
}

// OwnAddress returns the address of this machine in the network of Redis, as its connections have it; "" where
// there was none yet, or Redis is on this machine.
func (s *Store) OwnAddress() string { return s.db.OwnAddress() }

// Hosts returns the hosts on which worker processes are registered that have a lease, by name, and the server's time.
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
	told(pipe.Exec(ctx))
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

// cutProc returns the master and the place in the name of a process.
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
