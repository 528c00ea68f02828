package store

import (
	"crypto/sha1" //nolint:gosec // the only hash that Redis scripts have
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// scanBound is how many locked jobs of one queue an exchange moves to the tail before it tries the next queue.
const scanBound = 64

// maxEmpty bounds the queues that an exchange checks for being empty at once.
const maxEmpty = 64

// exchangeArgs returns the script's arguments. Frequent texts are passed as pointers, because an interface
// of a pointer needs no allocation.
func (s *Store) exchangeArgs(req ExchangeRequest, order order) []any {
	plain, others := order.plain, len(req.Completions)-order.plain
	args := make([]any, 0, 4+2*plain+9*others+2+4*len(req.Names)+len(req.NamedClasses))
	args = append(args, s.db.Prefix, req.Proc, req.Master, s.exchangeHead(req, order))
	for at := range plain {
		args = append(args, &req.Completions[order.indices[at]].Job.Token)
	}
	for at := range order.locked {
		args = append(args, &req.Completions[order.indices[at]].Job.LockKey)
	}
	for at := range others {
		c := &req.Completions[order.indices[plain+at]]
		var flags, worker any = "", ""
		text := c.Failure.text()
		gap, large := c.Failure.flags()
		listed := c.Kind == Failed && s.opts.Load().FailureLists
		if c.Job.Capped || c.Held || c.Killed || c.Survived || c.Count != nil || gap || large || c.Park || listed || c.Renamed || c.Job.Limited {
			flags = letters(c.Job.Capped, 'c', c.Held, 'h', c.Killed, 'k', c.Survived, 's', c.Count != nil, 'n', gap, 'g', large, 'l', c.Park, 'x', listed, 'm', c.Renamed, 'o', c.Job.Limited, 'i')
		}
		if c.Kind == Restored {
			text = append(fmt.Appendf(nil, "%d\n%s", len(c.Parked), c.Parked), text...)
		}
		if c.Payload != nil {
			text = c.Payload
		}
		if c.Count != nil {
			text = c.Count.before(text)
		}
		var failure any = text
		if c.Mirrored {
			worker = c.Job.Worker
		}
		args = append(args, &c.Job.Token, c.Kind.arg(), &c.Job.Queue, &c.Job.LockKey, flags,
			worker, c.Job.Deaths, failure, milliseconds(c.Delay))
	}
	if len(req.Wants) > 0 {
		args = append(args, wantList(req.Wants), queueList(req.Queues))
	}
	for _, n := range req.Names {
		sum := sha1.Sum(n.Payload) //nolint:gosec // a name for the script, which has no other hash
		args = append(args, n.Queue, hex.EncodeToString(sum[:]), n.Name, n.Tenant)
	}
	for _, class := range req.NamedClasses {
		args = append(args, class)
	}
	for i := range req.Queues {
		if q := &req.Queues[i]; q.Fair != nil {
			args = append(args, q.Name, q.Fair.rule)
		}
	}
	return args
}

// exchangeHead returns all numbers of a request as one text, see lua/exchange_fast.lua: each argument costs
// the server time.
func (s *Store) exchangeHead(req ExchangeRequest, o order) []byte {
	fast := !req.Repeat && len(req.Names) == 0 && len(req.NamedClasses) == 0 && req.Suspects != OnlySuspects
	opts := s.opts.Load()
	head := make([]byte, 0, 96)
	head = append(head, digit(fast), ' ', byte('0'+req.Lane), ' ', 'c') //nolint:gosec // 0 or 1
	if opts.LockPayload {
		head[len(head)-1] = 'p'
	}
	for _, n := range [...]int64{
		seconds(opts.LockTTL), s.leaseLeft().Milliseconds(), 2*req.Sending + int64(req.Lane),
		int64(o.plain), int64(o.locked), int64(len(req.Completions) - o.plain), int64(len(req.Wants)), int64(len(req.Queues)),
		int64(min(req.Empty, maxEmpty)), int64(len(req.Names)), int64(len(req.NamedClasses)), scanBound,
	} {
		head = strconv.AppendInt(append(head, ' '), n, 10)
	}
	head = append(head, ' ', digit(req.Repeat), ' ', byte(req.Suspects.letter()))
	for _, i := range o.indices[:o.plain] {
		if req.Completions[i].Job.Limited {
			return append(head, 'i')
		}
	}
	return head
}

func digit(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}

// arg returns a kind's letter; common kinds need no allocation.
func (k Kind) arg() any {
	switch k {
	case Done:
		return "d"
	case Failed:
		return "f"
	case Requeued:
		return "r"
	default:
		return string(rune(k))
	}
}

// wantList returns the wants as one text. The names of a process's workers have common parts, which are sent
// once.
func wantList(wants []Want) []byte {
	name := wants[0].Worker
	lead, tail := len(name), len(name)
	size := 4 + len(name)
	for i := range wants {
		other := wants[i].Worker
		lead = min(lead, len(other))
		for name[:lead] != other[:lead] {
			lead--
		}
		tail = min(tail, len(other))
		for name[len(name)-tail:] != other[len(other)-tail:] {
			tail--
		}
		tail = min(tail, min(len(name), len(other))-lead)
		size += 3 + len(wants[i].Token) + len(other)
	}
	list := make([]byte, 0, size)
	list = append(binary.BigEndian.AppendUint16(list, uint16(lead)), name[:lead]...)           //nolint:gosec // of a name
	list = append(binary.BigEndian.AppendUint16(list, uint16(tail)), name[len(name)-tail:]...) //nolint:gosec // of a name
	for i := range wants {
		token, rest := wants[i].Token, wants[i].Worker[lead:len(wants[i].Worker)-tail]
		list = append(list, byte(len(token)), byte(len(rest)>>8), byte(len(rest)))
		list = append(append(list, token...), rest...)
	}
	return list
}

// queueList returns the queues as one text, because the server reads one long argument much faster than many
// short ones. See lua/exchange_fast.lua.
func queueList(queues []Queue) []byte {
	size := 0
	for i := range queues {
		size += len(queues[i].Name) + 5
	}
	list := make([]byte, 0, size+8)
	for i := range queues {
		q := &queues[i]
		list = append(binary.BigEndian.AppendUint32(list, uint32(len(q.Name))), 0) //nolint:gosec // of a name
		if i == 0 || q.mode() != queues[i-1].mode() {
			at := len(list)
			list = q.mode().append(list)
			list[at-1] = byte(len(list) - at)
		}
		list = append(list, q.Name...)
	}
	return list
}

// mode is all that an exchange needs to know of a queue besides its name.
type mode struct {
	cap                                        int
	locked, named, unique, strict, lined, fair bool
}

func (q *Queue) mode() mode {
	return mode{q.Cap, q.Locked, q.Named, q.Unique, q.Strict, q.Lined, q.Fair != nil}
}

func (m mode) append(list []byte) []byte {
	list = strconv.AppendInt(list, int64(m.cap), 10)
	return append(list, letters(m.locked, 'l', m.named, 'k', m.unique, 'u', m.strict, 's', m.lined, 'q', m.fair, 'f')...)
}
