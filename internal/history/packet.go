package history

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxPacket bounds a packet in bytes. Sums that need more are sent in several.
	MaxPacket     = 24 << 10
	packetVersion = 2
	// maxSeries is the maximum size of one series in bytes.
	maxSeries = 1 + 2*binary.MaxVarintLen64 + MaxName + 5*binary.MaxVarintLen64 + allBuckets*(1+binary.MaxVarintLen64)
	// idleReports is the number of reports without a job after which a name is forgotten.
	idleReports = 30
)

// Take returns the counts as a packet and resets them. Series that do not fit are left for the
// next call; nil = nothing is left.
//
//	byte     2, the version
//	a series, as often as there are any:
//	  byte     c (class) or q (queue)
//	  uvarint  length of the name, and the name
//	  uvarint  runs, failed, not run, interrupted, microseconds
//	  uvarint  how many buckets are not empty; for each a byte, its number
//	           (from 40 on: of the waiting times), and a uvarint
func (s *Sums) Take() []byte {
	var packet []byte
	for _, kind := range []Kind{Class, Queue} {
		for name, t := range s.of(kind).sums {
			if t.Empty() {
				if t.unused++; t.unused > idleReports {
					s.of(kind).forget(name)
				}
				continue
			}
			if packet == nil {
				packet = append(make([]byte, 0, 512), packetVersion)
			}
			if len(packet)+maxSeries > MaxPacket {
				return packet
			}
			packet = appendSeries(packet, kind, name, &t.Sum)
			t.Sum, t.unused = Sum{}, 0
		}
	}
	return packet
}

// PutBack returns a packet from Take that could not be sent.
func (s *Sums) PutBack(packet []byte) error {
	return readPacket(packet, func(kind Kind, name string, sum *Sum) {
		s.of(kind).of(name).Merge(sum)
	})
}

func appendSeries(b []byte, kind Kind, name string, s *Sum) []byte {
	b = append(b, byte(kind))
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	for _, n := range []uint64{s.Runs, s.Failed, s.Unrun, s.Interrupted, s.Micros} {
		b = binary.AppendUvarint(b, n)
	}
	used := 0
	s.buckets(func(int, uint64) { used++ })
	b = binary.AppendUvarint(b, uint64(used))
	s.buckets(func(i int, n uint64) { b = binary.AppendUvarint(append(b, byte(i)), n) })
	return b
}

// buckets calls f for each bucket that is not empty; waiting times are numbered from RunBuckets on.
func (s *Sum) buckets(f func(i int, n uint64)) {
	for i, n := range s.Run {
		if n > 0 {
			f(i, n)
		}
	}
	for i, n := range s.Wait {
		if n > 0 {
			f(RunBuckets+i, n)
		}
	}
}

func (s *Sum) bucket(i int) *uint64 {
	if i < RunBuckets {
		return &s.Run[i]
	}
	return &s.Wait[i-RunBuckets]
}

var errPacket = errors.New("a packet of sums cannot be read")

// readPacket calls f for each series. If the end cannot be read, the beginning still counts.
func readPacket(packet []byte, f func(kind Kind, name string, s *Sum)) error {
	if len(packet) == 0 {
		return nil
	}
	if packet[0] != packetVersion {
		return fmt.Errorf("%w: its version is %d, not %d", errPacket, packet[0], packetVersion)
	}
	if len(packet) > MaxPacket {
		return fmt.Errorf("%w: it has %d bytes, more than %d", errPacket, len(packet), MaxPacket)
	}
	r := reader{rest: packet[1:]}
	for len(r.rest) > 0 && r.err == nil {
		kind := Kind(r.byte())
		name := r.text()
		s := &Sum{Runs: r.number(), Failed: r.number(), Unrun: r.number(), Interrupted: r.number(), Micros: r.number()}
		for range min(r.number(), allBuckets) {
			i := int(r.byte())
			n := r.number()
			if i >= allBuckets {
				r.fail("bucket %d", i)
				break
			}
			b := s.bucket(i)
			*b = add(*b, n)
		}
		if kind != Class && kind != Queue {
			r.fail("kind %d", kind)
		}
		if r.err == nil {
			f(kind, bounded(name), s)
		}
	}
	return r.err
}

// reader reads the parts of a packet. After an error, all parts are empty.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errPacket}, args...)...)
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("it is cut off")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("it is cut off in a number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail("it is cut off in a name")
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
