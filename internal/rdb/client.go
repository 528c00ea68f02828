// Package rdb talks to Redis: it connects, evaluates scripts, and has the rule which
// commands may be repeated. What the scripts do is the business of the packages store and
// longstore.
//
// What is where: client.go opens connections, url.go reads where to, dial.go and gauge.go
// watch what a server says on them, demoted.go notices that a server is no longer a primary,
// script.go composes and runs scripts, refusals.go
// says which commands did not run. ready.go waits for a server and probe.go tries all
// scripts on it.
package rdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultPoolSize is the PoolSize of Options.
const DefaultPoolSize = 4

// Options say which Redis, and how to connect to it.
type Options struct {
	URL       string
	Namespace string
	// ClientName is shown by CLIENT LIST.
	ClientName string
	// PoolSize bounds the connections; 0 = DefaultPoolSize.
	PoolSize int
	// CA are PEM certificates to trust instead of the system's, for servers whose
	// certificate is of one's own making; see ReadCA.
	CA string
	// Cert is the PEM certificate that is presented to the server, and its key; see ReadCert.
	Cert string
	// Password, if not nil, returns the password for each new connection, in place of that of
	// the URL, so that one that is changed need not be told. "" = that of the URL.
	Password func() string
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool

	small bool   // few bytes go over the connections
	share *share // of the memory for answers that are under way
}

// Conn is the part of a redis.UniversalClient that resqued uses. The rest of that interface names
// types of go-redis with 1,500 methods, which each package that knows a Client would compile again.
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
	// Prefix is what all keys begin with: the namespace and a colon.
	Prefix string
	// Write never repeats a command by itself; Read does.
	Write, Read Conn

	// opts are replaced by Use.
	opts atomic.Pointer[Options]
	// demotions is a hook of both.
	demotions demotions
	// rehearsed takes the scripts of a Probe; nil in any other client.
	rehearsed *rehearsal
}

// OwnAddress returns the address of this machine in the network of the server, as its connections have it; ""
// where there was none yet, or the server is on this machine.
func (c *Client) OwnAddress() string {
	if own := c.opts.Load().share.own.Load(); own != nil {
		return *own
	}
	return ""
}

// Open returns a client for opts. It connects at the first command, so that it
// only fails on options that cannot work.
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

// Use takes the CA, the Cert and the AllowEviction of opts for all that follows: new connections
// use these certificates. Everything else stays as it was opened.
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

// Another returns a client for the same server with a pool of its own, for connections on
// which little is said.
func (c *Client) Another(pool int) (Conn, error) {
	opts := *c.opts.Load()
	opts.PoolSize, opts.small = pool, true
	return newClient(opts, -1)
}

// Node returns the server that has the keys of the namespace. In a cluster all of them lie in one
// slot, and any other node knows none of them.
func (c *Client) Node(ctx context.Context) (redis.Cmdable, error) {
	if cluster, ok := c.Read.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, c.Prefix)
	}
	return c.Read, nil
}

// Close ends all connections.
func (c *Client) Close() error { return errors.Join(c.Write.Close(), c.Read.Close()) }

// Ping asks whether the server answers.
func (c *Client) Ping(ctx context.Context) error { return c.Read.Ping(ctx).Err() }

// Now returns the time of the server.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	now, err := c.Read.Time(ctx).Result()
	if err != nil {
		return now, fmt.Errorf("read the clock of redis: %w", err)
	}
	return now, nil
}

// Together reads what add asks for at one instant. A server that is full takes no transaction,
// whatever is in it: it is asked for one after the other, and add is called once more.
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

// Where is the server's address for messages, without credentials.
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

// SetLogger takes over what the client library would print to standard error.
func SetLogger(log func(text string)) { redis.SetLogger(libraryLog(log)) }

type libraryLog func(text string)

func (l libraryLog) Printf(_ context.Context, format string, v ...any) {
	l(fmt.Sprintf(format, v...))
}
