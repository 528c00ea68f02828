package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// hidden replaces secrets.
const hidden = "xxxxx"

// maxSecret limits a file with a secret, in bytes.
const maxSecret = 64 << 10

var redisSchemes = []string{
	"redis", "rediss", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster",
}

// splitURL splits a Redis URL by hand: a password may make net/url fail, whose error would repeat
// it. Everything up to the last "@" counts as credentials, to be on the safe side.
func splitURL(text string) (scheme, credentials, rest string) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	if strings.HasPrefix(rest, "/") { // the path of a socket, without credentials
		return scheme, "", rest
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		return scheme, rest[:i], rest[i+1:]
	}
	return scheme, "", rest
}

// variableForm matches a variable of a shell or of compose.
var variableForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{\w+`) })

var errNotExpanded = errors.New("variables such as ${NAME} are not expanded; write the value, or set the whole URL in the environment")

// checkRedisURL refuses a URL that cannot work. Its error never repeats the URL.
func checkRedisURL(text string) error {
	scheme, credentials, rest := splitURL(text)
	switch {
	case variableForm().MatchString(text):
		return errNotExpanded
	case scheme == "":
		return errors.New("not a URL; write redis://host:6379/0")
	case strings.ContainsRune(scheme, ':'): // part of a password
		return errors.New("not a URL; write redis://user:password@host:6379/0, with special characters of the password percent-encoded")
	case !slices.Contains(redisSchemes, scheme):
		return fmt.Errorf("scheme %q is not known, one of %s", scheme, strings.Join(redisSchemes, ", "))
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return errors.New("must not hold spaces or control characters; percent-encode them in a password (%20)")
	case strings.ContainsAny(credentials, "/?#@"):
		return errors.New(`percent-encode "/", "?", "#" and "@" in the user and password (%2F, %3F, %23, %40), or use redis_password_file`)
	case scheme == "unix" && !strings.HasPrefix(rest, "/"):
		return errors.New("needs the absolute path of the socket: unix:///run/redis/redis.sock")
	case scheme != "unix" && strings.IndexAny(rest+"/", "/?#") == 0:
		return errors.New("names no host; write " + scheme + "://host:6379")
	}
	if scheme != "unix" {
		if err := checkHosts(rest, strings.Contains(scheme, "-")); err != nil {
			return err
		}
	}
	u, err := url.Parse(text)
	if err != nil { // its text may repeat parts of the password
		return errors.New("not a valid URL; percent-encode special characters of the user and password, or use redis_password_file")
	}
	if db := strings.Trim(u.Path, "/"); (scheme == "redis" || scheme == "rediss") && strings.Trim(db, "0123456789") != "" {
		return fmt.Errorf("database %q is not a number; write redis://host:6379/0", db)
	}
	return nil
}

// checkHosts checks the host, or a list of hosts, and ports after the credentials of a URL.
func checkHosts(rest string, list bool) error {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	hosts := strings.Split(rest, ",")
	if len(hosts) > 1 && !list {
		return errors.New("names several hosts; only redis-sentinel:// and redis-cluster:// (rediss-… with TLS) do")
	}
	for _, one := range hosts {
		i := strings.LastIndexByte(one, ':')
		if strings.HasSuffix(one, "]") {
			i = -1 // the colon is part of an IPv6 address
		}
		name, port := one, ""
		if i >= 0 {
			name, port = one[:i], one[i+1:]
		}
		n, err := strconv.Atoi(port)
		switch {
		case name == "" && len(hosts) > 1:
			return errors.New("names no host between two commas; write host:6379,host:6379")
		case strings.Contains(name, ":") && !strings.HasPrefix(name, "["):
			return errors.New("an address of IPv6 needs brackets: [::1]:6379")
		case port != "" && (err != nil || n < 1 || n > math.MaxUint16):
			// It may be a password whose host is missing.
			return fmt.Errorf("the port must be a number from 1 to %d", math.MaxUint16)
		}
	}
	return nil
}

// password returns the password in a URL, still encoded.
func password(text string) string {
	_, credentials, _ := splitURL(text)
	_, pw, _ := strings.Cut(credentials, ":")
	return pw
}

// HasPassword reports whether a URL contains a password.
func HasPassword(url string) bool { return password(url) != "" }

// hasSecret reports whether a URL contains a password, also in its parameters.
func hasSecret(text string) bool {
	scheme, _, rest := splitURL(text)
	bare := scheme + "://" + rest
	return HasPassword(text) || text != "" && RedactURL(bare) != bare
}

// withPassword adds a password to a URL that has none.
func withPassword(text, pw string) string {
	scheme, credentials, rest := splitURL(text)
	user, _, _ := strings.Cut(credentials, ":")
	return scheme + "://" + user + url.UserPassword("", pw).String() + "@" + rest
}

// RedactURL returns a URL of Redis or of a database without passwords.
func RedactURL(text string) string {
	scheme, credentials, rest := splitURL(text)
	if scheme != "" && !slices.Contains(redisSchemes, scheme) && !slices.Contains(databaseSchemes, scheme) {
		// The "://" may be part of the password.
		if at := strings.LastIndexByte(text, '@'); at >= 0 {
			return hidden + text[at:]
		}
	}
	database := slices.Contains(databaseSchemes, scheme)
	if scheme != "" {
		scheme += "://"
	}
	user, _, secret := strings.Cut(credentials, ":")
	switch {
	case secret:
		credentials = user + ":" + hidden + "@"
	case credentials != "" && database:
		credentials += "@"
	case credentials != "": // it may be a misplaced password
		credentials = hidden + "@"
	}
	rest, query, found := strings.Cut(rest, "?")
	if !found {
		return scheme + credentials + rest
	}
	params := strings.Split(query, "&")
	for i, param := range params {
		if name, _, _ := strings.Cut(param, "="); secretParam(name) {
			params[i] = name + "=" + hidden
		}
	}
	return scheme + credentials + rest + "?" + strings.Join(params, "&")
}

// secretParam reports whether a URL parameter may hold a secret.
func secretParam(name string) bool {
	if decoded, err := url.QueryUnescape(name); err == nil {
		name = decoded
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"pass", "pw", "secret", "token", "auth", "key", "cred"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// readSecret reads a one-line secret, such as a password, from a file.
func readSecret(path, what string) (secret string, err error) {
	f, err := Open(path)
	if err != nil {
		return "", errors.New(refusal(path, err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", withoutPath(err)
	}
	secret = strings.TrimRight(string(data), "\r\n")
	switch {
	case secret == "":
		return "", fmt.Errorf("the file is empty; write the %s into it", what)
	case len(data) > maxSecret, strings.ContainsAny(secret, "\r\n\x00"):
		return "", fmt.Errorf("the file holds more than one line; write only the %s into it", what)
	}
	return secret, nil
}

// PasswordOf returns a function that rereads the Redis password from its file; nil if it has none.
// The function returns "" while the file holds no password.
func PasswordOf(c Config) func() string {
	path := c.RedisPasswordFile
	if path == "" {
		return nil
	}
	return func() string {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return "" // a pipe can be read only once
		}
		secret, err := readSecret(path, "password")
		if err != nil {
			return ""
		}
		return secret
	}
}
