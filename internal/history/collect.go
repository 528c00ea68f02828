package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// maxMinutes is how many minutes a Collector keeps until Take.
const maxMinutes = 15

// Series holds the sums of one minute.
type Series struct {
	// Minute is the minute, since 1970.
	Minute int64
	Sums   map[Name]*Sum
}

// Collector adds up what the worker processes of a master have sent. A job counts in the minute
// in which the master learned of its end. It is safe for concurrent use.
type Collector struct {
	host string

	lock    sync.Mutex
	minutes []Series // the oldest first
}

// NewCollector returns a collector for a host.
func NewCollector(host string) *Collector { return &Collector{host: bounded(host)} }

// Add adds a packet that arrived at a time.
func (c *Collector) Add(at time.Time, packet []byte) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	return readPacket(packet, func(kind Kind, name string, sum *Sum) {
		sums := c.at(at).Sums
		c.merge(sums, kind, name, sum)
	})
}

// Count adds the end of one job that no worker process could report.
func (c *Collector) Count(at time.Time, class, queue string, out Outcome) {
	var sum Sum
	sum.Add(out, Unknown, Unknown)
	c.lock.Lock()
	defer c.lock.Unlock()
	sums := c.at(at).Sums
	c.merge(sums, Class, bounded(class), &sum)
	c.merge(sums, Queue, bounded(queue), &sum)
}

// merge adds to a series. As each job has one class, a class's sum also goes to the host and to all.
func (c *Collector) merge(sums map[Name]*Sum, kind Kind, name string, sum *Sum) {
	into(sums, Name{kind, name}).Merge(sum)
	if kind == Class {
		into(sums, Name{Host, c.host}).Merge(sum)
		into(sums, AllJobs()).Merge(sum)
	}
}

func into(sums map[Name]*Sum, name Name) *Sum {
	s := sums[name]
	if s == nil && len(sums) >= 2*maxLocal && (name.Kind == Class || name.Kind == Queue) {
		name.Name = Other
		s = sums[name]
	}
	if s == nil {
		s = &Sum{}
		sums[name] = s
	}
	return s
}

func (c *Collector) at(at time.Time) Series {
	minute := at.Unix() / 60
	for _, s := range c.minutes {
		if s.Minute == minute {
			return s
		}
	}
	s := Series{Minute: minute, Sums: map[Name]*Sum{}}
	c.minutes = append(c.minutes, s)
	slices.SortFunc(c.minutes, func(a, b Series) int { return cmp.Compare(a.Minute, b.Minute) })
	if len(c.minutes) > maxMinutes {
		c.minutes = slices.Delete(c.minutes, 0, 1)
	}
	return s
}

// Take returns what was added since the last call.
func (c *Collector) Take() []Series {
	c.lock.Lock()
	defer c.lock.Unlock()
	taken := c.minutes
	c.minutes = nil
	return taken
}

// PutBack returns sums from Take that were certainly not written.
func (c *Collector) PutBack(series Series) {
	c.lock.Lock()
	defer c.lock.Unlock()
	sums := c.at(time.Unix(series.Minute*60, 0)).Sums
	for name, sum := range series.Sums {
		into(sums, name).Merge(sum)
	}
}
