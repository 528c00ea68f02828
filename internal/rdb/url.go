package rdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout is set here, like the other timeouts, because the library's defaults vary by version.
var dialTimeout = 3 * time.Second

// IOTimeout bounds the wait for an answer.
const IOTimeout = 5 * time.Second

// smallBuffer is enough for connections with little traffic.
const smallBuffer = 4 << 10

// buffer is the size of a connection's buffers; 0 = the library's own.
func (o Options) buffer() int {
	if o.small {
		return smallBuffer
	}
	return 0
}

// credentials returns the library's callback for user and password of each new connection; nil = from
// the URL.
func (o Options) credentials(user, password string) func(context.Context) (string, string, error) {
	if o.Password == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		return user, cmp.Or(o.Password(), password), nil
	}
}

// newClient returns a client for a URL. retries is go-redis' MaxRetries: -1 for the client that writes,
// because a retried script runs twice.
//
// Connections only send their name: the library's CLIENT SETINFO causes two errors per connection on a
// server before 7.2.
func newClient(o Options, retries int) (Conn, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("redis_url: %w", withoutURL(err))
	}
	certificates, err := o.certificates()
	if err != nil {
		return nil, err
	}
	o.share.tls.Store(certificates)
	switch u.Scheme {
	case "redis", "rediss", "unix":
		opts, err := redis.ParseURL(o.URL)
		if err != nil {
			return nil, fmt.Errorf("redis_url %q: %w", redact(u), withoutURL(err))
		}
		opts.MaxRetries = retries
		opts.ClientName, opts.DisableIdentity = o.ClientName, true
		opts.PoolSize = cmp.Or(o.PoolSize, DefaultPoolSize)
		opts.PipelinePoolSize = -1
		opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = dialTimeout, IOTimeout, IOTimeout
		opts.DialerRetries = 1
		opts.ContextTimeoutEnabled = true
		if opts.Dialer = o.Dial; o.Dial == nil {
			opts.Dialer = dialer(opts.TLSConfig, o.share)
		}
		opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		opts.ReadBufferSize, opts.WriteBufferSize = o.buffer(), o.buffer()
		opts.CredentialsProviderContext = o.credentials(opts.Username, opts.Password)
		return redis.NewClient(opts), nil
	case "redis-sentinel", "rediss-sentinel":
		return newSentinel(u, o, retries)
	case "redis-cluster", "rediss-cluster":
		if !hashTagged(o.Namespace) {
			return nil, fmt.Errorf("namespace %q: a Redis Cluster needs all keys in one slot; "+
				"use a hash-tagged namespace such as %q for every producer and worker", o.Namespace, "{"+o.Namespace+"}")
		}
		return newCluster(u, o, retries)
	default:
		return nil, fmt.Errorf("redis_url %q: scheme %q is not known; use redis://, rediss://, unix://, "+
			"redis-sentinel:// or redis-cluster:// (rediss-… for TLS)", redact(u), u.Scheme)
	}
}

// newSentinel reads redis-sentinel://[user:password@]host:port[,host:port…]/master[/db].
func newSentinel(u *url.URL, o Options, retries int) (Conn, error) {
	master, dbText, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if master == "" || u.Host == "" {
		return nil, fmt.Errorf("redis_url %q: write redis-sentinel://host:26379,host:26379/MASTER-NAME[/db]", redact(u))
	}
	db := 0
	if dbText != "" {
		n, err := strconv.Atoi(dbText)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("redis_url %q: database %q is not a number", redact(u), dbText)
		}
		db = n
	}
	opts := o.nodes(u, "26379", retries)
	opts.MasterName, opts.DB = master, db
	opts.SentinelUsername, opts.SentinelPassword = u.Query().Get("sentinel_username"), u.Query().Get("sentinel_password")
	client := redis.NewFailoverClient(opts.Failover())
	client.AddHook(askedSentinels{master})
	return client, nil
}

// ErrSentinelPassword: the sentinels require a password or reject theirs, which is not Redis's.
var ErrSentinelPassword = errors.New("the sentinels refuse the password, or miss one")

// askedSentinels explains errors of sentinels that answered, but which the library calls unreachable.
type askedSentinels struct{ master string }

func (a askedSentinels) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		switch {
		case err == nil || !strings.Contains(err.Error(), "all sentinels"):
		case Unauthorized(err):
			err = fmt.Errorf("%w: %w", ErrSentinelPassword, err)
		case errors.Is(err, redis.Nil):
			err = fmt.Errorf("the sentinels know no master called %q; write its name in redis-sentinel://host:26379/NAME/0: %w", a.master, err)
		}
		return conn, err
	}
}

func (askedSentinels) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (askedSentinels) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newCluster reads redis-cluster://[user:password@]host:port[,host:port…].
func newCluster(u *url.URL, o Options, retries int) (Conn, error) {
	if u.Host == "" {
		return nil, fmt.Errorf("redis_url %q: write redis-cluster://host:6379,host:6379", redact(u))
	}
	opts := o.nodes(u, "6379", retries)
	if retries < 0 {
		// The cluster client would repeat commands as redirects, too; Client.Once does so where
		// it is safe.
		opts.MaxRedirects = -1
	}
	return redis.NewClusterClient(opts.Cluster()), nil
}

// nodes returns the options of a client for several addresses.
func (o Options) nodes(u *url.URL, port string, retries int) *redis.UniversalOptions {
	opts := &redis.UniversalOptions{
		Addrs: hosts(u, port), MaxRetries: retries, ClientName: o.ClientName, DisableIdentity: true,
		PoolSize: cmp.Or(o.PoolSize, DefaultPoolSize), PipelinePoolSize: -1,
		DialTimeout: dialTimeout, ReadTimeout: IOTimeout, WriteTimeout: IOTimeout, DialerRetries: 1, ContextTimeoutEnabled: true,
		ReadBufferSize: o.buffer(), WriteBufferSize: o.buffer(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Username:                 u.User.Username(),
	}
	opts.Password, _ = u.User.Password()
	opts.CredentialsProviderContext = o.credentials(opts.Username, opts.Password)
	if OverTLS(u.Scheme) {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	opts.Dialer = dialer(opts.TLSConfig, o.share)
	return opts
}

// certificates returns a configuration with the given certificates of the CA and the client.
func (o Options) certificates() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA+o.Cert != "" && !OverTLS(o.URL) {
		return nil, errors.New("certificates are given, and the URL of redis does not use TLS; write rediss://")
	}
	if o.CA != "" {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
			return nil, errors.New("no PEM certificate is among those that are given for redis")
		}
	}
	if o.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(o.Cert), []byte(o.Cert))
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key for redis: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// OverTLS reports whether connections to a URL use TLS.
func OverTLS(url string) bool { return strings.HasPrefix(strings.ToLower(url), "rediss") }

// ReadCA reads certificates for Options.CA; "" without a file.
func ReadCA(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s: no PEM certificate in it", file)
	}
	return string(text), err
}

// ReadCert reads a certificate and its key for Options.Cert; "" without files.
func ReadCert(certFile, keyFile string) (string, error) {
	if certFile+keyFile == "" {
		return "", nil
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return "", err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return "", err
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return "", fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return string(cert) + "\n" + string(key), nil
}

func hosts(u *url.URL, port string) []string {
	list := strings.Split(u.Host, ",")
	for i, h := range list {
		if !strings.Contains(h, ":") {
			list[i] = h + ":" + port
		}
	}
	return list
}

// hashTagged reports whether all keys with this prefix are in one slot.
func hashTagged(namespace string) bool {
	_, rest, ok := strings.Cut(namespace, "{")
	if !ok {
		return false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return ok && tag != ""
}

// redact returns the URL for messages, without passwords. A user without a password may be a misplaced
// password.
func redact(u *url.URL) string {
	const hidden = "xxxxx"
	shown := *u
	if _, has := u.User.Password(); has {
		shown.User = url.UserPassword(u.User.Username(), hidden)
	} else if u.User != nil {
		shown.User = url.User(hidden)
	}
	params := strings.Split(u.RawQuery, "&")
	for i, param := range params {
		name, _, found := strings.Cut(param, "=")
		decoded, err := url.QueryUnescape(name)
		if found && (err != nil || secretParam(decoded)) {
			params[i] = name + "=" + hidden
		}
	}
	shown.RawQuery, shown.Fragment, shown.RawFragment = strings.Join(params, "&"), "", ""
	return shown.String()
}

func secretParam(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"pass", "pw", "secret", "token", "auth", "key", "cred"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// withoutURL removes the URL, and with it the password, from a parse error.
func withoutURL(err error) error {
	var parse *url.Error
	if ok := errors.As(err, &parse); ok {
		return parse.Err
	}
	return err
}
