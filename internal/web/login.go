package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Login identifies visitors.
type Login struct {
	// Tokens has the tokens that may log in; nil = none.
	Tokens *Tokens
	// Anonymous is the role without a login; 0 = a login is required, except of Operators on a
	// unix socket. Only visitors of this machine get it: from a loopback address or a unix socket.
	Anonymous Role
	// The UserHeader of Proxies (addresses) and ProxyUsers (user ids, on a unix socket) is
	// trusted.
	Proxies    []netip.Prefix
	ProxyUsers []int
	UserHeader string
	// Operators are names of users, of the proxy or of this machine, that may make changes.
	Operators []string
	// Log receives failed logins, once per address in failureTime; nil = none.
	Log *slog.Logger

	mu     sync.Mutex
	failed map[netip.Addr]wrong
	since  time.Time // when the first address in failed failed
}

const (
	// maxFailures is how many wrong tokens an address may try within failureTime.
	maxFailures = 10
	failureTime = time.Minute
	// maxFailing is how many addresses are remembered, and so how many lines are logged, within
	// failureTime. Further addresses share one entry.
	maxFailing = 1_000
)

// wrong are distinct wrong tokens: an open page whose token was removed repeats it every two
// seconds, and must not lock out others of its address.
type wrong map[[sha256.Size]byte]bool

func unauthorized(message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: message, Hint: "Log in with a token: as password, or as Authorization: Bearer."}
}

// Who returns
// the visitor behind a request, or an error.
func (l *Login) Who(r *http.Request) (Visitor, error) {
	from, local := peer(r)
	if name := r.Header.Get(l.UserHeader); l.UserHeader != "" && name != "" {
		if len(r.Header.Values(l.UserHeader)) > 1 {
			// The proxy has added its header to the visitor's.
			return Visitor{}, &Error{Status: http.StatusForbidden, Code: "proxy", Message: l.UserHeader + " is there more than once", Hint: "Have the proxy replace what it is sent."}
		}
		if !l.trusts(r, from) {
			l.fails(r, from, l.UserHeader, l.UserHeader+" from an address that is not a trusted proxy")
			return Visitor{}, &Error{Status: http.StatusForbidden, Code: "proxy", Message: fmt.Sprintf("%s comes from %s, which is not a trusted proxy", l.UserHeader, origin(r)), Hint: "Name it with --trusted-proxy."}
		}
		return l.named(name), nil
	}
	if r.Header.Get("Authorization") != "" {
		return l.logIn(r, from)
	}
	if forwarded(r) || l.trusts(r, from) {
		// A visitor behind a proxy of this machine need not be on it.
		return Visitor{}, unauthorized("a proxy asks, and does not say for whom")
	}
	if user, ok := localUserOf(r); ok {
		v := l.named(user.name)
		if l.Anonymous > 0 || v.Role == Operator { // authenticated by the kernel
			v.Role = max(v.Role, l.Anonymous)
			return v, nil
		}
	}
	if l.Anonymous > 0 && local {
		return Visitor{Role: l.Anonymous}, nil
	}
	return Visitor{}, unauthorized("this server asks for a login")
}

// trusts reports whether a trusted proxy asks.
func (l *Login) trusts(r *http.Request, from netip.Addr) bool {
	if user, ok := localUserOf(r); ok {
		return slices.Contains(l.ProxyUsers, user.uid)
	}
	return slices.ContainsFunc(l.Proxies, func(p netip.Prefix) bool { return from.IsValid() && p.Contains(from) })
}

func origin(r *http.Request) string {
	if user, ok := localUserOf(r); ok {
		return "user " + user.name
	}
	return r.RemoteAddr
}

// forwarded reports whether a proxy asks for another client.
func forwarded(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains([]string{"Forwarded", "X-Real-Ip", "Via"}, name) {
			return true
		}
	}
	return false
}

func (l *Login) named(name string) Visitor {
	v := Visitor{Name: name, Role: Viewer}
	if slices.Contains(l.Operators, name) {
		v.Role = Operator
	}
	return v
}

// peer returns the remote address, and whether it is this machine.
func peer(r *http.Request) (from netip.Addr, local bool) {
	if _, local = localUserOf(r); local { // a client chooses its socket's name
		return netip.Addr{}, true
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	from = at.Addr().Unmap()
	return from, from.IsLoopback()
}

func (l *Login) logIn(r *http.Request, from netip.Addr) (Visitor, error) {
	if l.Tokens == nil {
		return Visitor{}, unauthorized("this server knows no tokens")
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		var ok bool
		if _, token, ok = r.BasicAuth(); !ok {
			return Visitor{}, unauthorized("the Authorization is neither Bearer nor Basic")
		}
	}
	token = strings.TrimSpace(token)
	v, found, err := l.Tokens.find(token)
	if err != nil {
		return Visitor{}, err
	}
	if found {
		return v, nil // regardless of other failures of its address
	}
	if l.fails(r, from, token, "the token is not known") {
		return Visitor{}, &Error{Status: http.StatusTooManyRequests, Code: "too_many", Message: "too many logins from this address have failed", Hint: "Wait a minute."}
	}
	return Visitor{}, unauthorized("the token is not known")
}

// fails notes a failed login, and reports whether its address had too many before.
func (l *Login) fails(r *http.Request, from netip.Addr, token, why string) (tooMany bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.since) >= failureTime {
		l.since, l.failed = time.Now(), map[netip.Addr]wrong{}
	}
	if len(l.failed) >= maxFailing && l.failed[from] == nil {
		from = netip.Addr{}
	}
	f := l.failed[from]
	if f == nil {
		f = wrong{}
		l.failed[from] = f
		if l.Log != nil {
			l.Log.Warn("a login has failed", slog.String("from", origin(r)), slog.String("why", why))
		}
	}
	if len(f) >= maxFailures {
		return true
	}
	f[sha256.Sum256([]byte(token))] = true
	return false
}

// Tokens is a file with a line per token: its name, its role, and the SHA-256 of the token in
// hexadecimal. It is reread when it has changed.
type Tokens struct {
	Path string

	mu   sync.Mutex
	read os.FileInfo
	list []Token
}

// Token is a line of the file.
type Token struct {
	Name string
	Role Role
	Sum  [sha256.Size]byte
}

const maxTokens = 1 << 20

// List returns the tokens; none without a file.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.Path)
	if os.IsNotExist(err) {
		t.read, t.list = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	if t.read != nil && os.SameFile(t.read, info) && t.read.ModTime().Equal(info.ModTime()) && t.read.Size() == info.Size() {
		return t.list, nil
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("read the tokens: %s may be read or written by every user: chmod o= %[1]s", t.Path)
	}
	if info.Size() > maxTokens {
		return nil, fmt.Errorf("read the tokens: %s has %d bytes; %d are allowed", t.Path, info.Size(), maxTokens)
	}
	text, err := os.ReadFile(t.Path)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	list, err := ParseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	t.read, t.list = info, list
	return list, nil
}

func (t *Tokens) find(token string) (v Visitor, found bool, err error) {
	list, err := t.List()
	if err != nil {
		return v, false, err
	}
	sum := sha256.Sum256([]byte(token))
	for _, one := range list { // all of them, for constant time
		if subtle.ConstantTimeCompare(one.Sum[:], sum[:]) == 1 {
			v, found = Visitor{Name: one.Name, Role: one.Role}, true
		}
	}
	return v, found, nil
}

// ParseTokens reads the text of a token file.
func ParseTokens(text []byte) ([]Token, error) {
	var list []Token
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		one := Token{Name: fields[0]}
		var sum []byte
		var err error
		if len(fields) == 3 {
			sum, err = hex.DecodeString(fields[2])
		}
		if len(fields) != 3 || err != nil || len(sum) != len(one.Sum) {
			return nil, fmt.Errorf("line %d: use NAME ROLE and a SHA-256 in hexadecimal", n)
		}
		if one.Role, err = ParseRole(fields[1]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		copy(one.Sum[:], sum)
		list = append(list, one)
	}
	return list, nil
}

// FormatTokens returns the text of a token file.
func FormatTokens(list []Token) []byte {
	var b bytes.Buffer
	b.WriteString("# NAME ROLE SHA-256; written by: resqued web token\n")
	for _, one := range list {
		fmt.Fprintf(&b, "%s %s %x\n", one.Name, one.Role, one.Sum)
	}
	return b.Bytes()
}

// ParseRole returns the role with a name.
func ParseRole(name string) (Role, error) {
	for _, r := range []Role{Viewer, Operator} {
		if r.String() == name {
			return r, nil
		}
	}
	return 0, fmt.Errorf("role %q: use viewer or operator", name)
}

type localUserKey struct{}

// localUser is a user of this machine, identified by the kernel.
type localUser struct {
	uid  int
	name string
}

func localUserOf(r *http.Request) (localUser, bool) {
	user, ok := r.Context().Value(localUserKey{}).(localUser)
	return user, ok
}

// withLocalUser adds the user at the other end of a unix socket.
func withLocalUser(ctx context.Context, c net.Conn) context.Context {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peerUID(socket)
	if err != nil {
		return ctx
	}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return context.WithValue(ctx, localUserKey{}, localUser{uid, name})
}

// peerUID returns the user at the other end of a unix socket.
func peerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { uid, failed = credentials(int(fd)) })
	return uid, cmp.Or(err, failed)
}
