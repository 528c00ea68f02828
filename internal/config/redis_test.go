package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRedisURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"redis://localhost", "redis://localhost:6379/0", "rediss://app:s3cret@db.example:6380/2?protocol=3", "redis://[::1]:6379/0",
		"unix:///run/redis.sock", "unix://app:pw@/run/redis.sock?db=1", "unix:///run/a@b.sock",
		"redis-sentinel://u:p@a:26379,b:26379/primary/1?sentinel_password=x", "redis://:p%40ss%2F@h/0",
	} {
		require.NoError(t, checkRedisURL(good), good)
	}
	for bad, want := range map[string]string{
		"localhost:6379":          "not a URL; write redis://host:6379/0",
		"http://localhost":        `scheme "http" is not known, one of redis, rediss, unix`,
		"redis://:p@ss@h":         `percent-encode "/", "?", "#" and "@"`,
		"redis://:p/ss@h":         `percent-encode "/", "?", "#" and "@"`,
		"redis://:p ss@h":         "must not hold spaces",
		"redis://:p%zz@h":         "not a valid URL; percent-encode special characters",
		"redis://":                "names no host; write redis://host:6379",
		"redis:///0":              "names no host; write redis://host:6379",
		"redis://h:port":          "the port must be a number from 1 to 65535",
		"redis://h/main":          `database "main" is not a number`,
		"redis://h/-1":            `database "-1" is not a number`,
		"unix://run/redis.sock":   "needs the absolute path of the socket",
		"redis-sentinel://?x=y":   "names no host; write redis-sentinel://host:6379",
		"redis://u:secret@:0x/\t": "must not hold spaces or control characters",
	} {
		require.ErrorContains(t, checkRedisURL(bad), want, bad)
	}
	t.Run("a cluster needs a namespace that keeps its keys together", func(t *testing.T) {
		t.Parallel()
		_, err := from{env: "REDIS_URL=redis-cluster://a:1,b:1"}.load(t)
		require.EqualError(t, err, `namespace "resque" (default): a Redis Cluster needs all keys in one slot;`+
			` use a hash-tagged namespace, "{resque}", for every producer and worker`)
		from{env: "REDIS_URL=redis-cluster://a:1,b:1 RESQUE_NAMESPACE={resque}"}.mustLoad(t)
	})
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://h:1/0":                                       "redis://h:1/0",
		"redis://secret@h/0":                                  "redis://xxxxx@h/0",
		"redis://h/0?password=secret":                         "redis://h/0?password=xxxxx",
		"redis://h/0?p%61ss=secret":                           "redis://h/0?p%61ss=xxxxx",
		"postgres://app@h/0":                                  "postgres://app@h/0",
		"redis://app:secret@h/0":                              "redis://app:xxxxx@h/0",
		"redis://:secret@h/0?db=1":                            "redis://:xxxxx@h/0?db=1",
		"redis://:sec/r?e@t@h/0":                              "redis://:xxxxx@h/0",
		"unix:///run/a@b.sock":                                "unix:///run/a@b.sock",
		"unix://:secret@/run/r.sock":                          "unix://:xxxxx@/run/r.sock",
		"redis-sentinel://a,b/m?sentinel_password=secret&x=1": "redis-sentinel://a,b/m?sentinel_password=xxxxx&x=1",
		":secret@h:1":                                         ":xxxxx@h:1",
		"":                                                    "",
	} {
		require.Equal(t, want, RedactURL(text))
	}

	t.Run("no password shows, whatever is in it", func(t *testing.T) {
		t.Parallel()
		require.NotContains(t, checkRedisURL("u:S3CRET://@host").Error(), "S3CRET", "the scheme is a part of it")
		rapid.Check(t, func(t *rapid.T) {
			pw := rapid.StringMatching(`[a-z@/?#:%& ]{0,6}S3CRET[a-z@/?#:%& ]{0,6}`).Draw(t, "password")
			for _, text := range []string{"redis://u:" + pw + "@host:6379/0", withPassword("redis://u@h/0", pw), "u:" + pw + "@host", "u://" + pw + "@host"} {
				require.NotContains(t, RedactURL(text), "S3CRET", text)
				if err := checkRedisURL(text); err != nil {
					require.NotContains(t, err.Error(), "S3CRET")
				}
			}
		})
	})

	t.Run("errors, plan, fingerprint and log show no secret", func(t *testing.T) {
		t.Parallel()
		_, err := from{env: "REDIS_URL=redis://u:S3CRET/@h"}.load(t)
		require.ErrorContains(t, err, `redis_url "redis://u:xxxxx@h" (environment REDIS_URL)`)
		_, err = from{env: "REDIS_URL=u:S3CRET@h:6379"}.load(t)
		require.ErrorContains(t, err, `redis_url "u:xxxxx@h:6379"`)

		r := from{env: "REDIS_URL=redis://u:S3CRET@h", yaml: "handlers: {A: {command: [a], env: {TOKEN: S3CRET}}}"}.mustLoad(t)
		shown, err := json.Marshal([]any{r.Redacted(), Plan(r), r.Warnings, r.Sources})
		require.NoError(t, err)
		require.NotContains(t, string(shown), "S3CRET")
		require.Equal(t, "S3CRET", r.Handlers["A"].Env["TOKEN"], "the configuration itself keeps it")

		other := r.Config
		other.RedisURL = "redis://u:other@h"
		require.Equal(t, r.Fingerprint(), other.Fingerprint())
		other.MaxDeaths++
		require.NotEqual(t, r.Fingerprint(), other.Fingerprint())
		require.Len(t, r.Fingerprint(), 12)
		mine, its := strings.Fields(r.KeyDigests()), strings.Fields(other.KeyDigests())
		changed := slices.DeleteFunc(its, func(key string) bool { return slices.Contains(mine, key) })
		require.Len(t, changed, 1, "%v", mine)
		require.Regexp(t, "^max_deaths=[0-9a-f]{4}$", changed[0])
	})
}

// certificate writes a new certificate and its key to files.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return certFile, keyFile
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	_, other := certificate(t)
	const secure = "REDIS_URL=rediss://h RESQUED_REDIS_"
	for name, tc := range map[string]struct{ env, want string }{
		"a CA without TLS":                 {"REDIS_URL=redis://h RESQUED_REDIS_CA_FILE=" + cert, `RESQUED_REDIS_CA_FILE): redis_url (environment REDIS_URL) does not use TLS; write rediss://`},
		"a CA that is missing":             {secure + "CA_FILE=/no/such", "no such file or directory"},
		"a CA that is not a certificate":   {"REDIS_URL=rediss-sentinel://h/m RESQUED_REDIS_CA_FILE=" + key, "no PEM certificate in it"},
		"a certificate without TLS":        {"REDIS_URL=redis://h RESQUED_REDIS_CERT_FILE=" + cert + " RESQUED_REDIS_KEY_FILE=" + key, "does not use TLS"},
		"a certificate without its key":    {secure + "CERT_FILE=" + cert, "needs its key: set redis_key_file"},
		"a key without its certificate":    {secure + "KEY_FILE=" + key, "needs its certificate: set redis_cert_file"},
		"the key of another certificate":   {secure + "CERT_FILE=" + cert + " RESQUED_REDIS_KEY_FILE=" + other, "not the key, without a passphrase, of the certificate in " + cert},
		"a certificate in the key's place": {secure + "CERT_FILE=" + cert + " RESQUED_REDIS_KEY_FILE=" + cert, "no PEM private key in it"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := from{env: tc.env}.load(t)
			require.ErrorContains(t, err, "(environment RESQUED_REDIS_")
			require.ErrorContains(t, err, tc.want)
		})
	}

	t.Run("worker processes get what they need of the files, and nothing else shows it", func(t *testing.T) {
		t.Parallel()
		certificates, err := os.ReadFile(cert)
		require.NoError(t, err)
		secret, err := os.ReadFile(key)
		require.NoError(t, err)
		both := filepath.Join(t.TempDir(), "both.pem")
		require.NoError(t, os.WriteFile(both, slices.Concat([]byte("comment\n"), secret, certificates), 0o644)) //nolint:gosec // is warned of
		r := from{env: secure + "CA_FILE=" + both + " RESQUED_REDIS_CERT_FILE=" + both + " RESQUED_REDIS_KEY_FILE=" + both}.mustLoad(t)
		require.Equal(t, string(certificates), r.RedisCA)
		require.Equal(t, string(certificates)+string(secret), r.RedisCert)
		require.Len(t, r.Warnings, 1)
		require.Contains(t, r.Warnings[0].Message, "Every user of this machine can read "+both)
		require.Empty(t, r.Redacted().RedisCA+r.Redacted().RedisCert)
		require.Equal(t, r.RedisCert, r.At("rediss://locks").RedisCert)
		require.Empty(t, r.At("redis://locks").RedisCA+r.At("redis://locks").RedisCert)
	})
}

func TestPasswordFile(t *testing.T) {
	t.Parallel()
	const secret = "p@ss/w:rd %"
	write := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "redis-password")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	userinfo := func(t *testing.T, r *Resolved) *url.Userinfo {
		u, err := url.Parse(r.RedisURL)
		require.NoError(t, err)
		return u.User
	}

	t.Run("its password is put into the URL", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"redis://h:1/0", "redis://app@h:1/0", "unix:///run/r.sock", "unix://app@/run/r.sock", "redis-sentinel://a:1,b:1/m"} {
			r := from{env: "REDIS_URL=" + u + " RESQUED_REDIS_PASSWORD_FILE=" + write(t, secret+"\n")}.mustLoad(t)
			require.NotNil(t, PasswordOf(r.At(r.RedisURL)))
			require.Nil(t, PasswordOf(r.At("redis://:other@locks")), "another server does not get it")
			user := userinfo(t, r)
			pw, _ := user.Password()
			require.Equal(t, secret, pw)
			require.Equal(t, strings.Contains(u, "app@"), user.Username() == "app")
			require.NoError(t, checkRedisURL(r.RedisURL))
		}
	})

	t.Run("systemd's credential is used without being asked for", func(t *testing.T) {
		t.Parallel()
		path := write(t, secret)
		r := from{env: "CREDENTIALS_DIRECTORY=" + filepath.Dir(path)}.mustLoad(t)
		pw, _ := userinfo(t, r).Password()
		require.Equal(t, secret, pw)
		require.Equal(t, path, r.RedisPasswordFile)
		require.Equal(t, Source{Kind: FromEnv, Name: "CREDENTIALS_DIRECTORY"}, r.Sources["redis_password_file"])
	})

	t.Run("other credentials are no business of ours", func(t *testing.T) {
		t.Parallel()
		r := from{env: "CREDENTIALS_DIRECTORY=" + t.TempDir()}.mustLoad(t)
		require.Empty(t, r.RedisPasswordFile)
	})

	t.Run("a credential that loses against the URL is warned of", func(t *testing.T) {
		t.Parallel()
		r := from{env: "REDIS_URL=redis://:own@h CREDENTIALS_DIRECTORY=" + filepath.Dir(write(t, secret))}.mustLoad(t)
		require.Equal(t, "redis://:own@h", r.RedisURL)
		require.Equal(t, "overruled", r.Warnings[0].Code)
	})

	t.Run("a password on the command line is warned of", func(t *testing.T) {
		t.Parallel()
		r := from{flags: "--redis-url redis://:own@h"}.mustLoad(t)
		require.Equal(t, "password_in_argv", r.Warnings[0].Code)
	})

	t.Run("so is one in a configuration that everybody can read", func(t *testing.T) {
		t.Parallel()
		path := write(t, "redis_url: redis://:mine@h\ndatabase_url: postgres://u:pw@h/d\nhandlers: {A: {command: [a], lock: {redis: 'redis://:x@l'}}, B: {command: [b], lock: {redis: 'redis://:x@l'}}}\n")
		for mode, want := range map[os.FileMode][]string{0o644: {"database_url", "redis_url", "handlers.A.lock.redis"}, 0o640: nil} {
			require.NoError(t, os.Chmod(path, mode))
			r, err := Load(Options{File: path, Environ: []string{}})
			require.NoError(t, err)
			var keys []string
			for _, w := range r.Warnings {
				if w.Code == "exposed" {
					keys = append(keys, w.Key)
					require.Contains(t, w.Message, "chmod 640 "+path)
					require.NotContains(t, w.Message, "mine")
				}
			}
			require.Equal(t, want, keys)
		}
	})

	t.Run("a file that everybody can read is warned of", func(t *testing.T) {
		t.Parallel()
		path := write(t, secret)
		require.NoError(t, os.Chmod(path, 0o644))
		r := from{env: "RESQUED_REDIS_PASSWORD_FILE=" + path}.mustLoad(t)
		require.Equal(t, "exposed", r.Warnings[0].Code)
	})

	for name, tc := range map[string]struct{ text, env, want string }{
		"an empty file":             {"\n", "", "the file is empty; write the password into it"},
		"a file of several lines":   {"a\nb\n", "", "the file holds more than one line"},
		"a second password":         {secret, "REDIS_URL=redis://:own@h", "redis_url (environment REDIS_URL) holds a password too; keep one of them"},
		"a file of a million bytes": {strings.Repeat("x", 1_000_000), "", "the file holds more than one line"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			path := write(t, tc.text)
			_, err := from{env: tc.env + " RESQUED_REDIS_PASSWORD_FILE=" + path}.load(t)
			require.ErrorContains(t, err, `redis_password_file "`+path+`" (environment RESQUED_REDIS_PASSWORD_FILE): `+tc.want)
			require.NotContains(t, err.Error(), secret)
		})
	}

	t.Run("a file that is missing is refused", func(t *testing.T) {
		t.Parallel()
		_, err := from{yaml: "redis_password_file: /no/such"}.load(t)
		require.EqualError(t, err, `redis_password_file "/no/such" (resqued.yaml:1): no such file or directory`)
		var errs Errors
		require.True(t, errors.As(err, &errs))
	})
}
