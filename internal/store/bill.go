package store

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

const (
	// billKeys is how many keys of the server Bill looks at, billCommands how many commands it watches.
	billKeys     = 2_000_000
	billCommands = 20_000
	// billMeasured is how many keys of one part are measured; the others count as much on average.
	billMeasured = 2_000
)

// Cost is what one part of a namespace costs Redis.
type Cost struct {
	// Part is "queue mail", "failures", "history", "locks".
	Part string `json:"part"`
	Keys int64  `json:"keys"`
	// Bytes is the memory of its keys. Of parts with thousands of keys it is an estimate.
	Bytes int64 `json:"bytes"`
	// PerS is how many commands a second use its keys, those in scripts included; nil = unknown.
	PerS *float64 `json:"commands_per_s"`
	// measured is how many of its keys Bytes counts, while it is read.
	measured int64
}

// Bill is what a namespace costs Redis.
type Bill struct {
	// Costs are its parts, the largest first.
	Costs []Cost
	// Partial: the server has more keys than were looked at.
	Partial bool
	// Unwatched says why commands are not known.
	Unwatched string
}

// Bill looks at each key of the namespace, and at most for a second at the commands that the server carries
// out (MONITOR, which slows it down meanwhile).
func (s *Store) Bill(ctx context.Context) (*Bill, error) {
	node, err := s.db.Node(ctx)
	if err != nil {
		return nil, fmt.Errorf("what Redis holds: %w", err)
	}
	costs, b := map[string]*Cost{}, &Bill{}
	of := func(key string) *Cost {
		what := partOf(key)
		if costs[what] == nil {
			costs[what] = &Cost{Part: what}
		}
		return costs[what]
	}
	var cursor uint64
	for looked := 0; ; {
		keys, next, err := node.Scan(ctx, cursor, globEscape(s.db.Prefix)+"*", scanCount).Result()
		if err != nil {
			return nil, fmt.Errorf("what Redis holds: %w", err)
		}
		if err := s.weigh(ctx, node, keys, of); err != nil {
			return nil, err
		}
		if cursor, looked = next, looked+scanCount; cursor == 0 {
			break
		}
		if b.Partial = looked >= billKeys; b.Partial {
			break
		}
	}
	for _, c := range costs {
		if c.measured > 0 {
			c.Bytes = int64(float64(c.Bytes) / float64(c.measured) * float64(c.Keys))
		}
	}
	if err := s.watch(ctx, node, of); err != nil {
		b.Unwatched = err.Error()
	}
	for _, c := range costs {
		if c.PerS == nil && b.Unwatched == "" {
			c.PerS = new(0.)
		}
		b.Costs = append(b.Costs, *c)
	}
	slices.SortFunc(b.Costs, func(a, b Cost) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Part, b.Part)) })
	return b, nil
}

// weigh adds keys to their parts.
func (s *Store) weigh(ctx context.Context, node redis.Cmdable, keys []string, of func(key string) *Cost) error {
	pipe := node.Pipeline()
	sizes := map[*Cost][]*redis.IntCmd{}
	for _, key := range keys {
		c := of(strings.TrimPrefix(key, s.db.Prefix))
		if c.Keys++; c.Keys <= billMeasured {
			sizes[c] = append(sizes[c], pipe.MemoryUsage(ctx, key, samples(strings.TrimPrefix(key, s.db.Prefix))))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && (rdb.Unreachable(err) || rdb.Refusal(err) != "") {
		return fmt.Errorf("sizes of keys (MEMORY USAGE): %w", err)
	}
	for c, list := range sizes {
		for _, size := range list {
			if size.Err() == nil { // else it has gone meanwhile
				c.Bytes, c.measured = c.Bytes+size.Val(), c.measured+1
			}
		}
	}
	return nil
}

// samples is how many parts of a key are measured: all (0) of lists, whose first jobs may be far larger than the
// others, and which Redis keeps in blocks of some KiB.
func samples(key string) int {
	if strings.HasPrefix(key, "queue:") && !strings.HasSuffix(key, ":uniqueue") || strings.HasPrefix(key, "failed") || strings.HasSuffix(key, "_failed") {
		return 0
	}
	return 100
}

// watch counts the commands of each part for a second, or until there are many.
func (s *Store) watch(ctx context.Context, node redis.Cmdable, of func(key string) *Cost) error {
	client, ok := node.(*redis.Client)
	if !ok {
		return fmt.Errorf("%T cannot watch them", node)
	}
	// MONITOR never ends, which go-redis's connections cannot do: it gets one that go-redis has only made.
	o := *client.Options()
	var conn net.Conn
	dial := o.Dialer
	o.Protocol, o.MinIdleConns, o.MaxRetries = 2, 0, -1
	o.Dialer = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		conn, err = dial(ctx, network, addr)
		return conn, err
	}
	maker := redis.NewClient(&o)
	defer func() { _ = maker.Close() }()
	made := maker.Conn()
	defer func() { _ = made.Close() }()
	if err := made.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("watch commands: %w", err)
	}
	conn = rdb.Unmeasured(conn)
	began := time.Now()
	end := began.Add(time.Second)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return fmt.Errorf("watch commands: %w", err)
	}
	lines, counts := bufio.NewReaderSize(conn, 1<<16), map[*Cost]float64{}
	for n := -1; n < billCommands; n++ {
		_ = conn.SetReadDeadline(end)
		line, err := readCut(lines)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			n = billCommands
		case err != nil:
			return fmt.Errorf("watch commands: %w", err)
		case n < 0 && line[0] != '+':
			return fmt.Errorf("watch commands (MONITOR): %s", strings.TrimSpace(strings.TrimPrefix(line, "-")))
		default:
			if key, ok := watchedKey(line, o.DB, s.db.Prefix); ok {
				counts[of(key)]++
			}
		}
	}
	seconds := time.Since(began).Seconds()
	for c, n := range counts {
		c.PerS = new(n / seconds)
	}
	return ctx.Err()
}

// readCut reads a line and returns its beginning: payloads may be long.
func readCut(r *bufio.Reader) (string, error) {
	const shown = 4096
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), shown-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return string(line), err
		}
	}
}

// watchedKey returns the key of the namespace in a line of MONITOR,
//
//	+1700000000.123456 [0 127.0.0.1:6379] "lpop" "resque:queue:mail"
//
// without the namespace. Scripts are left out: their commands have lines of their own.
func watchedKey(line string, db int, prefix string) (key string, ok bool) {
	_, rest, _ := strings.Cut(line, " [")
	number, rest, _ := strings.Cut(rest, " ")
	_, words, _ := strings.Cut(rest, "] ")
	if number != strconv.Itoa(db) {
		return "", false
	}
	for first := true; ; first = false {
		quoted, err := strconv.QuotedPrefix(words)
		if err != nil {
			return "", false // the end, or of a long line its cut
		}
		word, _ := strconv.Unquote(quoted)
		if name := strings.ToLower(word); first && (strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall")) {
			return "", false
		}
		if key, ok = strings.CutPrefix(word, prefix); ok && !first {
			return key, true
		}
		words = strings.TrimPrefix(words[len(quoted):], " ")
	}
}

// partOf returns the part of a namespace that a key, without the namespace, belongs to.
func partOf(key string) string {
	for _, p := range [...][2]string{
		{"queue", "queue: resqued:suspects: resqued:deaths: resqued:died: resqued:lines: resqued:ready: resqued:turns: resqued:blocked: resqued:open: resqued:seen:"},
		{"line", "resqued:line: resqued:turn:"},
		{"failures", "failed failure-resque-retry: resque-retry: resqued:passed: resqued:parked"},
		{"history", "resqued:hist: resqued:events stat:"},
		{"locks", "locket: lock: loner: locker: resqued:fence resqued:held: resqued:awaited resqued:asks: resqued:request:"},
		{"delayed jobs", "delayed timestamps: resqued:delayed"},
		{"long jobs", "resqued:longjob:"},
		{"running jobs", "resqued:inflight:"},
		{"workers", "worker resqued:proc resqued:master resqued:place: resqued:kill resqued:order"},
	} {
		for begin := range strings.FieldsSeq(p[1]) {
			rest, ok := strings.CutPrefix(key, begin)
			switch {
			case !ok:
			case p[0] == "line": // <length of the name>:<name>:…
				length, rest, _ := strings.Cut(rest, ":")
				n, _ := strconv.Atoi(length)
				return "queue " + rest[:min(max(n, 0), len(rest))]
			case p[0] == "queue":
				return "queue " + strings.TrimSuffix(strings.TrimSuffix(rest, ":uniqueue"), ":start_at")
			default:
				return p[0]
			}
		}
	}
	if strings.HasSuffix(key, "_failed") {
		return "failures"
	}
	return "the rest"
}
