// Package rdb connects to Redis, runs scripts, and has the rule which commands may be repeated.
// Packages store and longstore own the scripts.
//
// client.go opens connections; url.go reads addresses; dial.go and gauge.go check a server's answers;
// demoted.go detects that a server is no longer a primary; script.go composes and runs scripts;
// refusals.go knows which commands did not run; ready.go waits for a server; probe.go tries all
// scripts on it.
package rdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultPoolSize is the default of Options.PoolSize.
const DefaultPoolSize = 4

// Options say which Redis to use, and how to connect to it.
type Options struct {
	URL       string
	Namespace string
	// ClientName is shown by CLIENT LIST.
	ClientName string
	// PoolSize bounds the connections; 0 = DefaultPoolSize.
	PoolSize int
	// CA are PEM certificates to trust instead of the system's, for servers with certificates of
	// your own CA; see ReadCA.
	CA string
	// Cert is the client's PEM certificate and its key; see ReadCert.
	Cert string
	// Password, if not nil, returns the password for each new connection, so that it may change.
	// "" = the URL's.
	Password func() string
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool
	// Dial, if not nil, makes the connections to a single server: tests have one in their own process.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	small bool   // little data goes over the connections
	share *share // of the memory for pending answers
}

// Conn is the part of redis.UniversalClient that resqued uses. The rest names go-redis types with
// 1,500 methods, which every package that knows a Client would compile again.
type Conn interface {
	redis.Cmdable
	AddHook(hook redis.Hook)
	Do(ctx context.Context, args ...any) *redis.Cmd
	Process(ctx context.Context, cmd redis.Cmder) error
	PoolStats() *redis.PoolStats
	Close() error
}

// Client talks to one Redis. It is safe for concurrent use.
type Client struct {
	// Prefix begins all keys: the namespace and a colon.
	Prefix string
	// Write never repeats a command; Read does.
	Write, Read Conn

	opts atomic.Pointer[Options]
	// demotions is a hook of Write and Read.
	demotions demotions
	// rehearsed receives the scripts of a Probe; nil in any other client.
	rehearsed *rehearsal
}

// OwnAddress returns this machine's address in the server's network, as its connections show it; ""
// without a connection yet, or if the server is on this machine.
func (c *Client) OwnAddress() string {
	if own := c.opts.Load().share.own.Load(); own != nil {
		return *own
	}
	return ""
}

// Open returns a client for opts. It does not connect, so it only fails for impossible options.
func Open(opts Options) (*Client, error) {
	if opts.Namespace == "" {
		return nil, errors.New("namespace is empty; Resque's own is \"resque\"")
	}
	opts.share = &share{}
	write, err := newClient(opts, -1)
	if err != nil {
		return nil, err
	}
	read, err := newClient(opts, 3)
	if err != nil {
		return nil, err
	}
	c := &Client{Prefix: opts.Namespace + ":", Write: write, Read: read}
	c.opts.Store(&opts)
	c.demotions.watch(write)
	c.demotions.watch(read)
	return c, nil
}

// Use applies the CA, Cert and AllowEviction of opts to new connections and later checks.
func (c *Client) Use(opts Options) error {
	changed := *c.opts.Load()
	opts.URL = changed.URL
	certificates, err := opts.certificates()
	if err != nil {
		return err
	}
	changed.CA, changed.Cert, changed.AllowEviction = opts.CA, opts.Cert, opts.AllowEviction
	changed.share.tls.Store(certificates)
	c.opts.Store(&changed)
	return nil
}

// Another returns a client for the same server with its own pool, for connections with little traffic.
func (c *Client) Another(pool int) (Conn, error) {
	opts := *c.opts.Load()
	opts.PoolSize, opts.small = pool, true
	return newClient(opts, -1)
}

// Node returns the server with the keys of the namespace. In a cluster they all share one slot, and
// other nodes have none of them.
func (c *Client) Node(ctx context.Context) (redis.Cmdable, error) {
	if cluster, ok := c.Read.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, c.Prefix)
	}
	return c.Read, nil
}

// Close closes all connections.
func (c *Client) Close() error { return errors.Join(c.Write.Close(), c.Read.Close()) }

// Ping checks that the server answers.
func (c *Client) Ping(ctx context.Context) error { return c.Read.Ping(ctx).Err() }

// Now returns the time of the server.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	now, err := c.Read.Time(ctx).Result()
	if err != nil {
		return now, fmt.Errorf("read the clock of redis: %w", err)
	}
	return now, nil
}

// Together reads what add asks for at one instant. A full server accepts no transaction, so add is
// then called once more and the reads are not atomic.
func (c *Client) Together(ctx context.Context, add func(pipe redis.Pipeliner)) error {
	pipe := c.Read.TxPipeline()
	add(pipe)
	_, err := pipe.Exec(ctx)
	if strings.HasPrefix(replyText(err), "EXECABORT") || Refusal(err) == "OOM" {
		pipe = c.Read.Pipeline()
		add(pipe)
		_, err = pipe.Exec(ctx)
	}
	return err
}

// Where returns the server's address for messages, without credentials.
func (c *Client) Where() string {
	u, err := url.Parse(c.opts.Load().URL)
	if err != nil {
		return "redis"
	}
	return redact(u)
}

func (c *Client) reloadCluster(ctx context.Context) {
	if cluster, ok := c.Write.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// SetLogger sets where the client library logs, instead of standard error.
func SetLogger(log func(text string)) { redis.SetLogger(libraryLog(log)) }

type libraryLog func(text string)

func (l libraryLog) Printf(_ context.Context, format string, v ...any) {
	l(fmt.Sprintf(format, v...))
}
