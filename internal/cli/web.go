package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/longjob"
)

const (
	webListen = "127.0.0.1:5678"
	webTokens = "/etc/resqued/web-tokens"
	// webLeave is how long running requests may take when the server ends.
	webLeave = 10 * time.Second
	// webMemory is the memory limit, in bytes, without GOMEMLIMIT: each sample of a large fleet is
	// garbage when the next one is there, and should not be kept twice.
	webMemory = 64 << 20
)

type webOptions struct {
	listen, prefix, tokens, userHeader string
	hosts, proxies, operators          []string
	operator, requireLogin             bool
	whileStdin, hideArgs               bool

	// wide are the trusted networks to warn about.
	wide []string
}

func (a *cli) webCommand() *cobra.Command {
	var o webOptions
	return a.command(verb{
		use: "web", kind: reads, short: "serve the dashboard, a JSON API and metrics by HTTP", args: none,
		long: `Serve what the other verbs show and do: pages for a browser, a JSON API
(/api/v1, described at /api/v1/openapi.yaml), Prometheus metrics of all daemons
(/metrics), and probes of this server without login (/healthz, /readyz). It
only needs Redis: run one for all machines. Nothing depends on it. Each of
several stores has its pages, API and metrics below /store/NAME, unless --store
names one.

Every user of this machine may look, unless --require-login. Changes need an
operator: a token of that role ("web token add"), a user of this machine or of
a trusted proxy named by --operators or, with --operator, any user of this
machine. Addresses that other machines reach need tokens or a trusted proxy.

A socket passed by systemd wins over --listen. See docs/dashboard.md.`,
		example: "web --operator\nweb --listen unix:/run/resqued/web.sock --operators deploy\n" +
			"web --listen 0.0.0.0:5678 --host jobs.example.com --tokens web-tokens",
		flags: func(f *flagSet) {
			f.StringVar(&o.listen, "listen", webListen, "`address` to listen on: host:port, unix:PATH, or fd:N (a passed socket)")
			f.BoolVar(&o.operator, "operator", false, "any user of this machine may change things")
			f.StringVar(&o.prefix, "path-prefix", "", "`path` prefix, behind a proxy that passes it on")
			f.completers["path-prefix"] = cobra.NoFileCompletions
			f.StringSliceVar(&o.hosts, "host", nil, "host `name` to accept, in addition to localhost and addresses (*: any)")
			f.StringSliceVar(&o.proxies, "trusted-proxy", nil, "`network` of proxies to believe, such as 10.0.0.0/8, or unix:USER, their user on a unix socket")
			f.StringVar(&o.userHeader, "user-header", "", "`header` in which a trusted proxy passes the user")
			f.StringSliceVar(&o.operators, "operators", nil, "`names` of users who may change things")
			f.BoolVar(&o.hideArgs, "hide-args", false, "show job arguments to operators only")
			addTokensFlag(f.FlagSet, &o.tokens)
			f.BoolVar(&o.requireLogin, "require-login", false, "also visitors from this machine must log in")
			// For a parent process: the server ends with it, however it ends.
			f.BoolVar(&o.whileStdin, "while-stdin", false, "end when the standard input ends")
			_ = f.MarkHidden("while-stdin")
		},
		do: func(c *cobra.Command, _ []string) error { return a.web(c, o) },
	}, a.webTokenCommand())
}

func addTokensFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "tokens", webTokens, "`file` of tokens (empty: none)")
}

func (a *cli) web(c *cobra.Command, o webOptions) error {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(webMemory)
	}
	listener, err := o.open()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	login, err := o.login(listener.Addr())
	if err != nil {
		return err
	}
	r, err := a.loadAs(c, config.Options{})
	if err != nil {
		return err
	}
	log, _ := a.daemonLog(c, each(r)[0])
	pages := slog.New(zapslog.NewHandler(log.Core(), zapslog.AddStacktraceAt(slog.LevelError+1)))
	login.Log = pages
	for _, network := range o.wide {
		log.Warn("every address of a wide network is believed to be a proxy that has checked who asks", zap.String("trusted_proxy", network))
	}
	server, where, closes, err := a.dashboard(c, r, func(s *web.Options) {
		s.PathPrefix, s.Hosts, s.Who, s.Log, s.HideArgs = o.prefix, o.hosts, login.Who, pages, o.hideArgs
	})
	defer closes()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c.Context())
	defer stop()
	if o.whileStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	serving := server.HTTP()
	sampling, unsample := context.WithCancel(context.WithoutCancel(ctx))
	ran := make(chan struct{})
	go func() { defer close(ran); server.Run(sampling) }()
	defer func() { unsample(); <-ran }()
	answered := make(chan struct{})
	over := context.AfterFunc(ctx, func() {
		defer close(answered)
		late, cancel := context.WithTimeout(context.Background(), webLeave)
		defer cancel()
		_ = serving.Shutdown(late)
	})
	log.Info("serving", zap.String("address", shownAddress(listener, o.prefix)), zap.String("redis", where))
	err = serving.Serve(listener)
	if over() {
		return err // it was not asked to end
	}
	if <-answered; errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

type dashboard interface {
	HTTP() *http.Server
	Run(ctx context.Context)
}

// dashboard opens a configuration's store, or all of them; set completes the options of each.
func (a *cli) dashboard(c *cobra.Command, r *config.Resolved, set func(*web.Options)) (d dashboard, where string, closes func(), err error) {
	each := each(r)
	var opened []func()
	closes = func() {
		for _, one := range slices.Backward(opened) {
			one()
		}
	}
	all, places := make([]web.Options, len(each)), make([]string, len(each))
	for i, one := range each {
		s, err := app.OpenStore(one.Config, "resqued-web")
		if err != nil {
			return nil, "", closes, err
		}
		opened = append(opened, func() { _ = s.Close() })
		jobs, err := a.client(one.Config)
		if err != nil {
			return nil, "", closes, err
		}
		opened = append(opened, func() { _ = jobs.Close() })
		locks, closed, err := databaseLocks(context.WithoutCancel(c.Context()), one.DatabaseURL)
		if err != nil {
			return nil, "", closes, err
		}
		opened = append(opened, closed)
		places[i] = s.Where()
		all[i] = web.Options{
			DatabaseLocks: locks, StoreName: one.Store, Store: s, Jobs: jobs, Namespace: one.Namespace, Version: version(), Command: a.again(), Redact: one.Redact, Within: one.Within.Of, Tenant: a.program().Tenancy(one.Config),
			Long: func(ctx context.Context) *longjob.Client {
				return longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), a.handlers)
			},
			Checks: a.checks(one),
		}
		if len(r.Stores) > 0 {
			all[i].Command += " --" + config.StoreFlag + " " + one.Store
		}
		set(&all[i])
	}
	if len(r.Stores) == 0 {
		all[0].StoreName = ""
		return web.New(all[0]), places[0], closes, nil
	}
	return web.NewStores(all), strings.Join(places, ", "), closes, nil
}

// login checks the flags and returns the login rules for an address.
func (o *webOptions) login(at net.Addr) (*web.Login, error) {
	if err := web.CheckPrefix(o.prefix); err != nil {
		return nil, usage("", "--path-prefix %q: %s", o.prefix, err)
	}
	o.prefix = strings.TrimRight(o.prefix, "/")
	l := &web.Login{UserHeader: o.userHeader, Operators: o.operators}
	for _, text := range o.proxies {
		if name, ok := strings.CutPrefix(text, "unix:"); ok {
			uid, err := proxyUser(name, at)
			if err != nil {
				return nil, usage("", "--trusted-proxy %q: %s", text, err)
			}
			l.ProxyUsers = append(l.ProxyUsers, uid)
			continue
		}
		network, err := netip.ParsePrefix(text)
		if at, failed := netip.ParseAddr(text); err != nil && failed == nil {
			network, err = at.Prefix(at.BitLen())
		}
		if err != nil {
			return nil, usage("", "--trusted-proxy %q: use an address, a network such as 10.0.0.0/8, or unix:USER", text)
		}
		if network.Bits() == 0 {
			return nil, usage("Use the address of the proxy, or of its network.", "--trusted-proxy %q: holds every address, so any visitor could give any name", text)
		}
		if network = network.Masked(); wide(network) {
			o.wide = append(o.wide, network.String())
		}
		if at.Network() == "unix" {
			return nil, usage("", "--trusted-proxy %q: it comes by a unix socket, which has no addresses: use unix: and the user that it runs as", text)
		}
		l.Proxies = append(l.Proxies, network)
	}
	if (len(o.proxies) > 0) != (o.userHeader != "") {
		return nil, usage("", "--trusted-proxy and --user-header: use both or none")
	}
	known := false
	if o.tokens != "" {
		l.Tokens = &web.Tokens{Path: o.tokens} // even without tokens: they may be added later
		list, err := l.Tokens.List()
		if err != nil {
			return nil, usage("", "%s", err)
		}
		known = len(list) > 0
	}
	why := ""
	switch l.Anonymous = web.Viewer; {
	case o.requireLogin && o.operator:
		return nil, usage("", "--require-login and --operator: use one of them")
	case o.requireLogin:
		l.Anonymous, why = 0, "--require-login"
		known = known || at.Network() == "unix" && len(o.operators) > 0
	case o.operator:
		l.Anonymous = web.Operator
	}
	if !local(at) {
		why = fmt.Sprintf("%s: others reach that address", at)
	}
	if why != "" && !known && len(o.proxies) == 0 {
		return nil, usage("Add a token: resqued web token add NAME --role viewer. Or name a proxy that asks for a login: --trusted-proxy, --user-header.",
			"%s, and there is no login", why)
	}
	return l, nil
}

// wide reports whether a network is larger than a private or a company's network.
func wide(network netip.Prefix) bool {
	at := network.Addr()
	switch {
	case at.IsPrivate(), at.IsLoopback(), at.IsLinkLocalUnicast():
		return network.Bits() < 7 || at.Is4() && network.Bits() < 8
	case at.Is4():
		return network.Bits() < 16
	}
	return network.Bits() < 32
}

// proxyUser returns the id of the user that a proxy on a unix socket runs as.
func proxyUser(name string, at net.Addr) (uid int, err error) {
	if at.Network() != "unix" {
		return 0, fmt.Errorf("the server listens on %s, not on a unix socket: use an address or a network", at)
	}
	u, err := user.Lookup(name)
	if err == nil {
		name = u.Uid
	}
	n, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return 0, errors.New("there is no such user; use the one that the proxy runs as")
	}
	return int(n), nil
}

// local reports whether only this machine can reach an address.
func local(at net.Addr) bool {
	if at, ok := at.(*net.TCPAddr); ok {
		return at.IP.IsLoopback()
	}
	return at.Network() == "unix"
}

// firstPassed is the first descriptor that systemd passes.
const firstPassed = 3

// open returns the socket that systemd or a parent has passed, or opens one.
func (o *webOptions) open() (net.Listener, error) {
	if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err == nil && os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		if n != 1 {
			return nil, usage("", "systemd passes %d sockets; use one", n)
		}
		return passedSocket(firstPassed)
	}
	if text, ok := strings.CutPrefix(o.listen, "fd:"); ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n < firstPassed {
			return nil, usage("", "--listen %q: use fd: and the number of a descriptor from 3 on", o.listen)
		}
		return passedSocket(uintptr(n))
	}
	path, isUnix := strings.CutPrefix(o.listen, "unix:")
	switch {
	case !isUnix:
		return o.openTCP()
	case !filepath.IsAbs(path):
		return nil, usage("", "--listen %q: use unix: and an absolute path", o.listen)
	}
	// A killed server leaves its socket; a living one answers.
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, failure("in_use", "Use another path.", "--listen %s: another program listens there", o.listen)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path)
	}
	old := syscall.Umask(0o117) // 0660 from the start
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

func (o *webOptions) openTCP() (net.Listener, error) {
	_, port, err := net.SplitHostPort(o.listen)
	if _, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil {
		return nil, usage("", "--listen %q: use host:port, such as %s, or unix:PATH", o.listen, webListen)
	}
	network := "tcp"
	if at, err := netip.ParseAddrPort(o.listen); err == nil && at.Addr().Is4() {
		network = "tcp4" // 0.0.0.0 would include all IPv6 addresses
	}
	l, err := net.Listen(network, o.listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, failure("in_use", "Use another port.", "--listen %s: another program listens there", o.listen)
	case err != nil:
		return nil, usage("", "--listen %s: %s", o.listen, err)
	}
	return l, nil
}

// passedSocket is a socket that this process was started with.
func passedSocket(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "a socket that was passed")
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, usage("", "descriptor %d is to be a socket that listens: %s", fd, err)
	}
	return l, nil
}

// shownAddress is the address for a browser.
func shownAddress(l net.Listener, prefix string) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return "http://" + l.Addr().String() + prefix + "/"
}
