package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine is a directory with the places where configurations are looked for.
type machine struct {
	root   string
	places Places
}

// newMachine writes files, by their path in the machine: here/…, etc/…, credstore/….
func newMachine(t *testing.T, files map[string]string) machine {
	t.Helper()
	m := machine{root: t.TempDir()}
	m.places = Places{Here: m.path("here/resqued.yaml"), Etc: m.path("etc"), Credstore: m.path("credstore")}
	for _, dir := range []string{"here", "etc", "credstore"} {
		require.NoError(t, os.Mkdir(m.path(dir), 0o755))
	}
	for name, text := range files {
		require.NoError(t, os.WriteFile(m.path(name), []byte(text), 0o600))
	}
	return m
}

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

// load reads the configuration there.
func (m machine) load(o Options, env ...string) (*Resolved, error) {
	if o.Search == (Places{}) {
		o.Search = m.places
	}
	o.Environ = append([]string{}, env...)
	return Load(o)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	both := map[string]string{"here/resqued.yaml": "namespace: here", "etc/resqued.yaml": "namespace: etc"}
	for _, tc := range []struct {
		name  string
		files map[string]string
		o     Options
		env   string
		want  string
		by    string
	}{
		{"the directory's comes first", both, Options{}, "", "here", "found"},
		{"then that of the service", map[string]string{"etc/resqued.yaml": "namespace: etc"}, Options{}, "", "etc", "found"},
		{"one that is named wins", both, Options{}, "RESQUED_CONFIG=ROOT/etc/resqued.yaml", "etc", "environment RESQUED_CONFIG"},
		{"and so does none", both, Options{}, "RESQUED_CONFIG=none", "resque", "environment RESQUED_CONFIG"},
		{"also by the flag", both, Options{File: NoFile}, "RESQUED_CONFIG=ROOT/etc/resqued.yaml", "resque", "flag --config"},
		{"without any the defaults count", nil, Options{}, "", "resque", "default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tc.files)
			var env []string
			if tc.env != "" {
				env = append(env, strings.ReplaceAll(tc.env, "ROOT", m.root))
			}
			r, err := m.load(tc.o, env...)
			require.NoError(t, err)
			require.Equal(t, tc.want, r.Namespace)
			require.Equal(t, tc.by, r.Sources[ConfigFlag].String())
		})
	}

	t.Run("without places nothing is looked for", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, SystemPlaces().service("/etc/resqued.yaml"))
		require.Empty(t, Places{}.candidates())
	})
	t.Run("where nothing is found, what was looked for is said, and that there are instances", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/mail.yaml": ""})
		r, err := m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, []string{m.places.Here, m.path("etc/resqued.yaml")}, r.Searched)
		require.Equal(t, "the default, there is no "+m.places.Here+" and no "+m.path("etc/resqued.yaml")+
			" (but "+m.path("etc/mail.yaml")+": name one with --config)", r.Origin("redis_url"))
		require.Equal(t, NoFile, r.planFiles()[0].Value)
	})
	t.Run("an instance that is named like one gets a hint", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/nightmail.yaml": ""})
		_, err := m.load(Options{File: "nightmail"})
		require.EqualError(t, err, `config "nightmail" (flag --config): no such file or directory; there is --config `+m.path("etc/nightmail.yaml"))
	})
	t.Run("a mistake in a file that was found says that it was", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"here/resqued.yaml": "worker_cuont: 2"})
		_, err := m.load(Options{}, "THREAD_COUNT=x")
		var errs Errors
		require.ErrorAs(t, err, &errs)
		require.Len(t, errs, 2)
		require.True(t, errs[0].Source.Found)
		require.False(t, errs[1].Source.Found, "the file is not to blame")
	})
	t.Run("an empty name is refused", func(t *testing.T) {
		t.Parallel()
		_, err := from{flags: "--config="}.load(t)
		require.EqualError(t, err, `config (flag --config): names no file; leave it out, or write --config none to read none`)
	})
	t.Run("a reload reads the same file, and none where there was none", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/resqued.yaml": "namespace: etc"})
		old, err := m.load(Options{})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(m.places.Here, []byte("namespace: here"), 0o600))
		r, err := m.load(old.Again(Options{}))
		require.NoError(t, err)
		require.Equal(t, []string{"etc", "found"}, []string{r.Namespace, r.Sources[ConfigFlag].String()})

		require.NoError(t, os.Remove(old.File))
		_, err = m.load(old.Again(Options{}))
		require.EqualError(t, err, `config "`+old.File+`" (found): no such file or directory; to read no file: --config none`)

		none, err := Load(Options{Environ: []string{}})
		require.NoError(t, err)
		r, err = m.load(none.Again(Options{}))
		require.NoError(t, err)
		require.Equal(t, "resque", r.Namespace)
	})
}

// A found file that others may have written is not used: it names programs, and the server
// that gets the password.
func TestSearchDistrusts(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, m machine, env []string, why string) {
		t.Helper()
		_, err := m.load(Options{RunsPrograms: true}, env...)
		require.EqualError(t, err, `config "`+m.places.Here+`" (found): `+why+
			`, so it is not taken without being asked for; to use it: --config `+m.places.Here+`, to read no file: --config none`)
		r, err := m.load(Options{}, env...)
		require.NoError(t, err, "commands that run no programs go on")
		require.Equal(t, "etc", r.Namespace)
		require.Equal(t, []Warning{{
			Key: ConfigFlag, Code: "not_trusted", Message: m.places.Here + " is left out: " + why + ". To use it: --config " + m.places.Here,
		}}, r.Warnings)
		r, err = m.load(Options{File: m.places.Here, RunsPrograms: true}, env...)
		require.NoError(t, err, "unless it is named")
		require.Equal(t, "here", r.Namespace)
	}
	files := map[string]string{"here/resqued.yaml": "namespace: here", "etc/resqued.yaml": "namespace: etc"}

	t.Run("a file that everybody may write to", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, files)
		require.NoError(t, os.Chmod(m.places.Here, 0o666))
		refused(t, m, nil, "every user of this machine may write to it (chmod o-w)")
	})
	t.Run("what is left out is not said to be absent", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"here/resqued.yaml": "namespace: here"})
		require.NoError(t, os.Chmod(m.places.Here, 0o666))
		r, err := m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, "the default, "+m.places.Here+" is left out and there is no "+m.path("etc/resqued.yaml"), r.Origin("redis_url"))
		require.Contains(t, r.planFiles(), PlanLine{Key: ConfigFlag, Value: NoFile, From: m.places.Here + " is left out, no " + m.path("etc/resqued.yaml")})
	})
	t.Run("a file of another user", func(t *testing.T) {
		t.Parallel()
		needsRoot(t)
		m := newMachine(t, files)
		require.NoError(t, os.Chown(m.places.Here, 54321, 54321))
		refused(t, m, nil, "it belongs to user 54321, neither to you nor to root")
		refused(t, m, []string{"SUDO_UID=54322"}, "it belongs to user 54321, neither to you nor to root")
		r, err := m.load(Options{RunsPrograms: true}, "SUDO_UID=54321")
		require.NoError(t, err, "of the one who has become root")
		require.Equal(t, "here", r.Namespace)
	})
	t.Run("a link of another user", func(t *testing.T) {
		t.Parallel()
		needsRoot(t)
		m := newMachine(t, map[string]string{"here/other.yaml": "namespace: here", "etc/resqued.yaml": "namespace: etc"})
		require.NoError(t, os.Symlink("other.yaml", m.places.Here))
		require.NoError(t, os.Lchown(m.places.Here, 54321, 54321))
		refused(t, m, nil, "it is a link that belongs to user 54321")
	})
	t.Run("a pipe, which is not waited for", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/resqued.yaml": "namespace: etc"})
		require.NoError(t, syscall.Mkfifo(m.places.Here, 0o600))
		_, err := m.load(Options{RunsPrograms: true})
		require.ErrorContains(t, err, "it is not a regular file")
	})
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func TestServiceEnvironment(t *testing.T) {
	t.Parallel()
	service := map[string]string{
		"etc/resqued.yaml":                 "namespace: etc\nthread_count: 2",
		"etc/resqued.env":                  "# of the unit\nTHREAD_COUNT=4\nREDIS_URL=redis://unit:1/0\nWORKER_COUNT=\nRESQUED_INTERVL=1\nexport QUEUES=a\n",
		"credstore/resqued.redis-password": "secret\n",
		"etc/mail.yaml":                    "namespace: mail",
		"etc/mail.env":                     "THREAD_COUNT=8",
	}
	t.Run("what the unit reads counts for the shell", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, service)
		r, err := m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, 4, r.ThreadCount)
		require.Equal(t, "redis://:secret@unit:1/0", r.RedisURL)
		require.Equal(t, Source{Kind: FromEnvFile, Name: "REDIS_URL", File: m.path("etc/resqued.env"), Line: 3}, r.Sources["redis_url"])
		require.Equal(t, Source{Kind: FromCredential}, r.Sources["redis_password_file"])
		require.Equal(t, "from REDIS_URL in "+m.path("etc/resqued.env")+":3", r.Origin("redis_url"))
		var said []string
		for _, w := range r.Warnings {
			said = append(said, strings.ReplaceAll(w.Message, m.root, ""))
		}
		require.Equal(t, []string{
			`/etc/resqued.env:6: "export QUEUES" is not a name of a variable: systemd leaves the line out.`,
			"RESQUED_INTERVL (/etc/resqued.env) has no effect. Did you mean RESQUED_INTERVAL?",
		}, said)
	})
	t.Run("below the environment", func(t *testing.T) {
		t.Parallel()
		r, err := newMachine(t, service).load(Options{}, "THREAD_COUNT=16", "REDIS_URL=redis://mine:1/0")
		require.NoError(t, err)
		require.Equal(t, 16, r.ThreadCount)
		require.Equal(t, "redis://mine:1/0", r.RedisURL, "another server does not get the service's password")
	})
	t.Run("of a store, the password of its service", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{
			"etc/resqued.yaml":                   "stores: {a: {redis_url: redis://a, queues: [a]}, b: {redis_url: redis://b, queues: [b]}}",
			"credstore/resqued.redis-password":   "none's\n",
			"credstore/resqued.b.redis-password": "b's\n",
		})
		r, err := m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, []string{"redis://a", "redis://:b%27s@b"}, []string{r.Stores[0].RedisURL, r.Stores[1].RedisURL})
	})
	t.Run("of an instance, its own", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, service)
		r, err := m.load(Options{File: m.path("etc/mail.yaml")})
		require.NoError(t, err)
		require.Equal(t, []any{"mail", 8, "redis://127.0.0.1:6379/0"}, []any{r.Namespace, r.ThreadCount, r.RedisURL})
	})
	t.Run("not for what systemd has started, nor with a file of another directory", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, service)
		r, err := m.load(Options{}, "NOTIFY_SOCKET=/run/x")
		require.NoError(t, err)
		require.Equal(t, []any{2, "redis://127.0.0.1:6379/0"}, []any{r.ThreadCount, r.RedisURL})
		require.NoError(t, os.WriteFile(m.places.Here, nil, 0o600))
		r, err = m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, 1, r.ThreadCount)
	})
	t.Run("a file that systemd would leave out is left out", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/resqued.yaml": "", "etc/resqued.env": "THREAD_COUNT=4\nX=\xff"})
		r, err := m.load(Options{})
		require.NoError(t, err)
		require.Equal(t, 1, r.ThreadCount)
		require.Len(t, r.Warnings, 1)
		require.Contains(t, r.Warnings[0].Message, "is not UTF-8; systemd leaves out the whole file")
	})
	t.Run("a password in the address of a higher source wins over the file of a lower one", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, map[string]string{"etc/resqued.yaml": "redis_password_file: /no/such/file"})
		r, err := m.load(Options{}, "REDIS_URL=redis://:mine@h/0")
		require.NoError(t, err)
		require.Equal(t, []string{"redis://:mine@h/0", ""}, []string{r.RedisURL, r.RedisPasswordFile})
		require.Equal(t, "overruled", r.Warnings[0].Code)
	})
}

func TestParseEnvFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A=b":                              "A=b",
		"A=b\nB=c":                         "A=b|B=c",
		"  A = b  \n":                      "A=b",
		"A=b c  \t\n":                      "A=b c",
		"A=\n":                             "A=",
		"A=b#c ;d":                         "A=b#c ;d",
		"# A=b\n;B=c\nC=d":                 "C=d",
		"A='b c' \n":                       "A=b c",
		`A="b \"c\" \x \$D"`:               `A=b "c" \x $D`,
		`A='b'"c"d`:                        "A=bcd",
		"A=b\\\nc":                         "A=bc",
		"A=\"b\\\nc\"":                     "A=bc",
		"A=\"b\nc\"":                       "A=b\nc",
		`A=b\ c`:                           "A=b c",
		"A=b \\\n":                         "A=b ",
		"no assignment\nA=b":               "A=b",
		"export A=b":                       "export A=b",
		"A=b=c":                            "A=b=c",
		"=b":                               "",
		"A='never closed":                  "A=never closed",
		"A=b\r\nC=d\r\n":                   "A=b|C=d",
		"# a comment that goes on \\\nA=b": "A=b",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := parseEnvFile([]byte(text))
			require.NoError(t, err)
			var all []string
			for _, v := range got {
				all = append(all, v.name+"="+v.value)
			}
			require.Equal(t, want, strings.Join(all, "|"))
		})
	}
}

func FuzzParseEnvFile(f *testing.F) {
	for _, seed := range []string{"", "A=b", "A='b' \"c\\\"\" d\\\ne", "#x\\\nA=b", "A=b  \\", "=\n=\r", "A\x00=b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseEnvFile(data)
		if err != nil {
			require.Empty(t, all)
			return
		}
		total := 0
		for _, v := range all {
			require.Positive(t, v.line)
			require.LessOrEqual(t, v.line, 1+strings.Count(string(data), "\n"))
			require.NotContains(t, v.name, "\n")
			total += len(v.name) + len(v.value)
		}
		require.LessOrEqual(t, total, len(data)+len(all), "nothing is made up")
	})
}
