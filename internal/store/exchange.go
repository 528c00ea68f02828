package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // the only hash that Redis scripts have
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	exchangeScript = rdb.NewScript(Lua, "exchange", "lib/base", "lib/payload", "lib/rights", "exchange_fast", "lib/records", "lib/blocked_queues", "lib/unique_stub", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "exchange_slow")
	exchangeUnique = rdb.NewScript(Lua, "exchange", "lib/base", "lib/payload", "lib/rights", "exchange_fast", "lib/records", "lib/blocked_queues", "lib/unique", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "exchange_slow")
	pollScript     = rdb.NewScript(Lua, "poll", "lib/base", "lib/records", "lib/blocked_queues", "lib/suspects", "lib/pause", "poll")
)

// How many parts of the reply come before the jobs: of a call that went straight, and of
// another one.
const straightHeader, exchangeHeader = 2, 9

// scanBound is how many locked jobs of one queue an exchange looks at, and puts back at
// the tail, before it goes on to the next.
const scanBound = 64

// maxEmpty is how many queues an exchange takes for empty in one look.
const maxEmpty = 64

// Exchange ends jobs and reserves new ones, in one script. It returns ErrFenced,
// with nothing done, when the process has no valid lease.
//
// After any other error for which Unexecuted is false the call may have run. Send
// the very same request again with Repeat set: completions are applied once
// anyhow, and the wants get back what they already hold.
func (s *Store) Exchange(ctx context.Context, req ExchangeRequest) (ExchangeReply, error) {
	script := exchangeScript
	if req.unique() {
		script = exchangeUnique
		req.Empty = 0 // an empty one is tended, too
	}
	for i := range req.Completions {
		s.fit(ctx, &req.Completions[i].Failure, req.Completions[i].Job.Payload)
	}
	raw, err := s.db.Eval(ctx, script, s.db.Key(rdb.KeyInflight)+req.Proc, s.exchangeArgs(req))
	if err != nil {
		return ExchangeReply{}, err
	}
	return parseExchange(raw, req.Completions, req.Wants)
}

// unique reports whether the request has to do with a unique queue.
func (r *ExchangeRequest) unique() bool {
	for i := range r.Completions {
		if r.Completions[i].Job.Unique {
			return true
		}
	}
	return slices.ContainsFunc(r.Queues, func(q Queue) bool { return q.Unique })
}

// exchangeArgs returns the arguments of the script. Texts of which there are many go
// as pointers, because an interface of a pointer needs no memory of its own.
func (s *Store) exchangeArgs(req ExchangeRequest) []any {
	order := plainFirst(req.Completions)
	plain, others := order.plain, len(req.Completions)-order.plain
	args := make([]any, 0, 4+2*plain+9*others+2+3*len(req.Names)+len(req.NamedClasses))
	args = append(args, s.db.Prefix, req.Proc, req.Master, s.exchangeHead(req, order))
	for at := range plain {
		args = append(args, &req.Completions[order.index(at)].Job.Token)
	}
	for at := range order.locked {
		args = append(args, &req.Completions[order.index(at)].Job.LockKey)
	}
	for at := range others {
		c := &req.Completions[order.index(plain+at)]
		var flags, worker any = "", ""
		text := c.Failure.text()
		gap, large := c.Failure.flags()
		listed := c.Kind == Failed && s.opts.Load().FailureLists
		if c.Job.Capped || c.Held || c.Killed || c.Survived || c.Count != nil || gap || large || c.Park || listed {
			flags = letters(c.Job.Capped, 'c', c.Held, 'h', c.Killed, 'k', c.Survived, 's', c.Count != nil, 'n', gap, 'g', large, 'l', c.Park, 'x', listed, 'm')
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
		args = append(args, n.Queue, hex.EncodeToString(sum[:]), n.Name)
	}
	for _, class := range req.NamedClasses {
		args = append(args, class)
	}
	return args
}

// exchangeHead returns all numbers of a request, for which text would be dearer: the server
// would take in an argument for each, and the script would have to read it.
func (s *Store) exchangeHead(req ExchangeRequest, o order) []byte {
	straight := !req.Repeat && len(req.Names) == 0 && len(req.NamedClasses) == 0 && req.Suspects != OnlySuspects
	head := make([]byte, 0, 48)
	head = append(head, bit(straight), byte(req.Lane), 'c')
	if s.opts.Load().LockPayload {
		head[2] = 'p'
	}
	for _, n := range [...]int{o.plain, o.locked, len(req.Completions) - o.plain, len(req.Wants), len(req.Queues)} {
		head = appendCount(head, n)
	}
	ttl := strconv.FormatInt(seconds(s.opts.Load().LockTTL), 10)
	head = append(head, byte(len(ttl)), byte(min(req.Empty, maxEmpty))) //nolint:gosec // small
	for _, n := range [...]int{len(req.Names), len(req.NamedClasses), scanBound} {
		head = appendCount(head, n)
	}
	head = append(head, bit(req.Repeat), byte(req.Suspects.letter()))
	head = binary.BigEndian.AppendUint32(head, s.leaseLeft())
	head = append(head, ttl...)
	return strconv.AppendInt(head, 2*req.Sending+int64(req.Lane), 10)
}

// leaseLeft is how long, in ms, the lease of a process has to last yet when it takes jobs. By
// the server's clock it has beaten within 4/7 of a lease then, as a holder of a lock has by
// its own.
func (s *Store) leaseLeft() uint32 {
	return uint32(min(s.opts.Load().Lease*3/7, 24*time.Hour).Milliseconds()) //nolint:gosec // bounded
}

// appendCount appends a count in three bytes, the highest first.
func appendCount(to []byte, n int) []byte {
	return append(to, byte(n>>16), byte(n>>8), byte(n))
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// wantList returns the wants as one text. The names of a process's workers differ in little,
// so what they have in common goes once.
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

// queueList returns the queues as one text, because the server takes in one long argument
// much faster than a thousand short ones. See lua/exchange_fast.lua.
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

// mode is all that an exchange has to know of a queue beside its name.
type mode struct {
	cap                           int
	locked, named, unique, strict bool
}

func (q *Queue) mode() mode { return mode{q.Cap, q.Locked, q.Named, q.Unique, q.Strict} }

func (m mode) append(list []byte) []byte {
	list = strconv.AppendInt(list, int64(m.cap), 10)
	return append(list, letters(m.locked, 'l', m.named, 'k', m.unique, 'u', m.strict, 's')...)
}

// plain reports whether nothing is left of a job that has ended well but its record and
// its lock.
func (c *Completion) plain() bool {
	return c.Kind == Done && !c.Job.Capped && !c.Held && !c.Killed && !c.Mirrored && c.Job.Deaths == 0 && c.Count == nil
}

// maxPlain bounds the completions that the script ends with one command: Lua puts no
// more than some thousand arguments into a call.
const maxPlain = 1000

// order is that in which the script gets completions: the plain ones first, and of them
// those with a lock.
type order struct {
	plain, locked int
	indices       []int // nil: as they are
}

func (o order) index(at int) int {
	if o.indices == nil {
		return at
	}
	return o.indices[at]
}

// The classes of completions in their order.
const (
	plainLocked = iota
	plainUnlocked
	notPlain
)

func plainFirst(completions []Completion) order {
	var o order
	asTheyAre, last := true, plainLocked
	each := func(take func(i, class int)) {
		room := maxPlain
		for i := range completions {
			class := notPlain
			if room > 0 && completions[i].plain() {
				class = plainLocked
				if completions[i].Job.LockKey == "" {
					class = plainUnlocked
				}
				room--
			}
			take(i, class)
		}
	}
	each(func(_, class int) {
		asTheyAre, last = asTheyAre && class >= last, class
		if class != notPlain {
			o.plain++
		}
		if class == plainLocked {
			o.locked++
		}
	})
	if asTheyAre {
		return o
	}
	o.indices = make([]int, len(completions))
	next := [...]int{plainLocked: 0, plainUnlocked: o.locked, notPlain: o.plain}
	each(func(i, class int) {
		o.indices[next[class]] = i
		next[class]++
	})
	return o
}

// arg is the letter of a kind. That of a constant needs no memory.
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

func parseExchange(raw any, completions []Completion, wants []Want) (ExchangeReply, error) {
	list, ok := raw.([]any)
	if !ok || len(list) == 0 {
		return ExchangeReply{}, fmt.Errorf("script exchange: unexpected reply %T", raw)
	}
	if list[0] == "FENCED" {
		return ExchangeReply{}, ErrFenced
	}
	first, _ := list[0].(string)
	marks, straight := strings.CutPrefix(first, "+")
	header := exchangeHeader
	if straight {
		header = straightHeader
	}
	if len(list) < header || !straight && (len(list)-header)%2 != 0 || straight && len(list)-header > len(wants) {
		return ExchangeReply{}, fmt.Errorf("script exchange: reply of %d parts", len(list))
	}
	reply := ExchangeReply{}
	var reasons []string
	if straight {
		reply.More = rdb.Number(list[1]) == 1
	} else {
		marks, _ = list[3].(string)
		reasons = rdb.Texts(list[4])
		reply.Bounced, reply.More = int(rdb.Number(list[1])), rdb.Number(list[2]) == 1
		reply.WrongType, reply.OutOfStep = rdb.Texts(list[5]), rdb.Texts(list[6])
		unnamed := rdb.Texts(list[7])
		for i := 0; i+1 < len(unnamed); i += 2 {
			reply.Unnamed = append(reply.Unnamed, LockName{Queue: unnamed[i], Payload: []byte(unnamed[i+1])})
		}
		reply.Suspects = int(rdb.Number(list[8]))
	}
	if len(marks) != len(completions) {
		return ExchangeReply{}, fmt.Errorf("script exchange: %d answers for %d completions", len(marks), len(completions))
	}
	reply.Applied = make([]bool, len(completions))
	order := plainFirst(completions)
	for at := range completions {
		i, mark := order.index(at), marks[at]
		reply.Applied[i] = mark == '1' || mark == 'u' || mark == 'p'
		if mark == 'u' {
			reply.Duplicates = append(reply.Duplicates, i)
		}
		if mark == 'x' || mark == 'p' {
			if reply.Stuck == nil {
				reply.Stuck, reply.Parked = map[int]string{}, map[int]string{}
			}
			reason := "unknown reason"
			if len(reasons) > 0 {
				reason, reasons = reasons[0], reasons[1:]
			}
			if mark == 'x' {
				reply.Stuck[i] = reason
			} else {
				reply.Parked[i] = reason
			}
		}
	}
	if len(reasons) > 0 {
		reply.Unlockable = reasons[0]
	}
	step := 2
	if straight {
		step = 1
	}
	reply.Jobs = make([]Reserved, 0, (len(list)-header)/step)
	for i := header; i < len(list); i += step {
		record, _ := list[i+step-1].(string)
		var token string
		if straight {
			token = wants[i-header].Token
		} else {
			token, _ = list[i].(string)
		}
		job, err := ParseRecord(token, record)
		if err != nil {
			return ExchangeReply{}, err
		}
		reply.Jobs = append(reply.Jobs, job)
	}
	return reply, nil
}

// Poll tells which queues hold jobs: the fixed ones named, and with all set also
// the members of the queues set, a part of a large set at a time (cursor "0"
// begins a pass).
func (s *Store) Poll(ctx context.Context, all bool, cursor string, fixed []string) (PollReply, error) {
	args := make([]any, 0, 2+len(fixed))
	if !all {
		cursor = ""
	} else if cursor == "" {
		cursor = "0"
	}
	args = append(args, s.db.Prefix, cursor)
	for _, q := range fixed {
		args = append(args, q)
	}
	raw, err := s.db.Eval(ctx, pollScript, s.db.Key(keyQueues), args)
	if err != nil {
		return PollReply{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 5 {
		return PollReply{}, fmt.Errorf("script poll: unexpected reply %v", raw)
	}
	reply := PollReply{Waiting: rdb.Texts(list[1]), Blocked: rdb.Texts(list[2]), Due: rdb.Number(list[4]) == 1}
	reply.Cursor, _ = list[0].(string)
	suspects, _ := list[3].([]any)
	for i := 0; i+1 < len(suspects); i += 2 {
		if reply.Suspects == nil {
			reply.Suspects = map[string]int{}
		}
		queue, _ := suspects[i].(string)
		reply.Suspects[queue] = int(rdb.Number(suspects[i+1]))
	}
	return reply, nil
}

// letters returns the letters whose condition, in front of each, is true.
func letters(pairs ...any) string {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			b = append(b, byte(pairs[i+1].(rune)))
		}
	}
	return string(b)
}

// seconds rounds up: a lock must not end before the time that was promised.
func seconds(d time.Duration) int64 { return roundUp(d, time.Second) }
