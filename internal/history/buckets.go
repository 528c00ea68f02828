package history

import (
	"math"
	"math/bits"
	"time"
)

// The numbers of buckets. Bucket i of the run times holds times below ceil(1.5^i) ms, the last one
// the rest: 1 ms to more than an hour. A waiting-time bucket is as wide as two of these: 2 ms to
// more than a day.
const (
	RunBuckets  = 40
	WaitBuckets = 24
	allBuckets  = RunBuckets + WaitBuckets
)

// RunTimes counts runs by how long they took.
type RunTimes [RunBuckets]uint64

// WaitTimes counts runs by how long their jobs had waited.
type WaitTimes [WaitBuckets]uint64

// limits are the buckets' upper ends in milliseconds: ceil(1.5^i).
var limits = func() (out [2 * WaitBuckets]uint64) {
	for i := range out {
		out[i] = uint64(math.Ceil(math.Pow(1.5, float64(i))))
	}
	return out
}()

// firstOf maps the bit length of a time in milliseconds to the first bucket that may hold it.
var firstOf = func() (out [65]uint8) {
	for n := range out {
		least := uint64(0)
		if n > 0 {
			least = 1 << (n - 1)
		}
		for out[n] < uint8(len(limits)) && limits[out[n]] <= least {
			out[n]++
		}
	}
	return out
}()

func limitOf(d time.Duration) int {
	ms := uint64(max(0, d) / time.Millisecond)
	i := int(firstOf[bits.Len64(ms)])
	for i < len(limits) && limits[i] <= ms {
		i++
	}
	return i
}

func runBucket(d time.Duration) int { return min(limitOf(d), RunBuckets-1) }

func waitBucket(d time.Duration) int { return min(limitOf(d)/2, WaitBuckets-1) }

// RunLimit returns the exclusive upper end of run-time bucket i; 0 for the last, which has none.
func RunLimit(i int) time.Duration {
	if i < 0 || i >= RunBuckets-1 {
		return 0
	}
	return time.Duration(limits[i]) * time.Millisecond
}

// WaitLimit is RunLimit for the waiting times.
func WaitLimit(i int) time.Duration {
	if i < 0 || i >= WaitBuckets-1 {
		return 0
	}
	return time.Duration(limits[2*i+1]) * time.Millisecond
}

// Count returns the sum over all buckets.
func (h *RunTimes) Count() uint64 { return count(h[:]) }

// Count returns the sum over all buckets.
func (h *WaitTimes) Count() uint64 { return count(h[:]) }

// Percentile estimates the time that a share (0 to 1) of the runs did not exceed; false if there are none.
func (h *RunTimes) Percentile(share float64) (time.Duration, bool) {
	return percentile(h[:], share, RunLimit)
}

// Percentile estimates the waiting time that a share (0 to 1) of the jobs did not exceed; false if there are none.
func (h *WaitTimes) Percentile(share float64) (time.Duration, bool) {
	return percentile(h[:], share, WaitLimit)
}

func count(buckets []uint64) (n uint64) {
	for _, b := range buckets {
		n = add(n, b)
	}
	return n
}

// percentile finds the bucket and interpolates within it on a logarithmic scale.
func percentile(buckets []uint64, share float64, limit func(int) time.Duration) (time.Duration, bool) {
	all := 0.0
	for _, n := range buckets {
		all += float64(n)
	}
	if all == 0 || math.IsNaN(share) {
		return 0, false
	}
	rest := min(1, max(0, share)) * all
	for i, n := range buckets {
		here := float64(n)
		if here == 0 || rest > here && more(buckets[i+1:]) {
			rest -= here
			continue
		}
		low, high := time.Duration(0), limit(i)
		if i > 0 {
			low = limit(i - 1)
		}
		part := min(1, max(0, rest/here))
		switch {
		case high == 0: // the last bucket has no upper end
			return low, true
		case low == 0:
			return time.Duration(part * float64(high)), true
		}
		return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), part)), true
	}
	return 0, false
}

func more(buckets []uint64) bool {
	for _, n := range buckets {
		if n > 0 {
			return true
		}
	}
	return false
}

// add adds and saturates.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
