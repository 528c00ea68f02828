package history

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Prefix begins the keys, below the namespace.
const Prefix = "resqued:hist:"

// KeyNames is a sorted set of names, as Name.String writes them, scored by the last minute since
// 1970 in which something was counted.
const KeyNames = Prefix + "names"

// The lifetimes of strings after their last write.
const (
	hourTTL = 26 * time.Hour
	dayTTL  = 32 * 24 * time.Hour
	// NameTTL is how long a name and its total are kept after the last count.
	NameTTL = dayTTL + 24*time.Hour
)

// The strings. All numbers are unsigned and big-endian.
//
//	<kind>:<name>:h<hour since 1970>
//	  60 × 16 bytes, minutes:       u32 runs, u32 failed, u32 not run, u32 run time in 10 ms
//	  12 × 192 bytes, five minutes: 40 × u24 run times, 24 × u24 waiting times
//	<kind>:<name>:d<day since 1970>
//	  24 × 280 bytes, hours: u32 runs, u32 failed, u32 not run, 4 bytes, u64 run time in ms,
//	                         40 × u32 run times, 24 × u32 waiting times
//	<kind>:<name>:total
//	  u64 runs, u64 failed, u64 not run, u64 run time in ms, 64 × u48 run and waiting times;
//	  u64 interrupted, where there are any: versions that do not know it do not read so far
//	q:<queue>:g<hour since 1970>
//	  60 × 10 bytes, minutes: u32 jobs, u24 seconds that the first one has waited, u24 locks in
//	                          the way
//
// Redis's BITFIELD has no u64, so the highest bit of these stays unused.
const (
	minuteSize = 16
	fivesAt    = 60 * minuteSize
	fiveSize   = allBuckets * 3
	hourString = fivesAt + 12*fiveSize

	hourSize  = 24 + allBuckets*4
	dayString = 24 * hourSize

	totalString = 32 + allBuckets*6

	gaugeSize   = 10
	gaugeString = 60 * gaugeSize
)

// Write is one BITFIELD command.
type Write struct {
	// Key is without the namespace.
	Key string
	// Args follow the key.
	Args []any
	// TTL is how long the key lives from now on; 0 = for ever.
	TTL time.Duration
}

// write returns the beginning of a command. It touches the last byte first, so that Redis
// allocates the string once in its full size; growing it later would take twice as much memory.
func write(key string, size int, ttl time.Duration) Write {
	return Write{Key: Prefix + key, TTL: ttl, Args: []any{"OVERFLOW", "SAT", "INCRBY", "u8", "#" + strconv.Itoa(size-1), 0}}
}

// raise adds n to the number of that many bits at byte at.
func (w *Write) raise(bits, at int, n uint64) {
	if n == 0 {
		return
	}
	kind, offset := "u"+strconv.Itoa(bits), at*8
	if bits == 64 {
		kind, offset = "u63", at*8+1
	}
	w.Args = append(w.Args, "INCRBY", kind, offset, int64(min(n, math.MaxInt64)))
}

// set sets the number of that many bits at byte at, saturating.
func (w *Write) set(bits, at int, n uint64) {
	w.Args = append(w.Args, "SET", "u"+strconv.Itoa(bits), at*8, int64(min(n, 1<<bits-1)))
}

// Writes returns the commands that add a sum of one minute to Redis.
func Writes(name Name, minute int64, s *Sum) []Write {
	base := name.String()
	hour, day := minute/60, minute/(24*60)
	h := write(fmt.Sprintf("%s:h%d", base, hour), hourString, hourTTL)
	at := int(minute%60) * minuteSize
	h.raise(32, at, s.Runs)
	h.raise(32, at+4, s.Failed)
	h.raise(32, at+8, s.Unrun)
	h.raise(32, at+12, add(s.Micros, 5_000)/10_000)
	five := fivesAt + int(minute%60/5)*fiveSize
	s.buckets(func(i int, n uint64) { h.raise(24, five+3*i, n) })

	d := write(fmt.Sprintf("%s:d%d", base, day), dayString, dayTTL)
	at = int(hour%24) * hourSize
	d.raise(32, at, s.Runs)
	d.raise(32, at+4, s.Failed)
	d.raise(32, at+8, s.Unrun)
	d.raise(64, at+16, add(s.Micros, 500)/1000)
	s.buckets(func(i int, n uint64) { d.raise(32, at+24+4*i, n) })

	t := write(base+":total", totalString, 0)
	t.raise(64, 0, s.Runs)
	t.raise(64, 8, s.Failed)
	t.raise(64, 16, s.Unrun)
	t.raise(64, 24, add(s.Micros, 500)/1000)
	s.buckets(func(i int, n uint64) { t.raise(48, 32+6*i, n) })
	t.raise(64, totalString, s.Interrupted)
	return []Write{h, d, t}
}

// TotalKey returns the key of a total, without the namespace.
func TotalKey(name Name) string { return Prefix + name.String() + ":total" }
