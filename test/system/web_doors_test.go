package system_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// listening opens a socket on a free port, to be passed on, and returns its address.
func listening(t *testing.T, host string) (address string, file *os.File) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	file, err = listener.(*net.TCPListener).File()
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return listener.Addr().String(), file
}

// documented returns the block of the dashboard's documentation in a language that contains a
// word.
func documented(t *testing.T, language, word string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/dashboard.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], word) {
			return m[1]
		}
	}
	t.Fatalf("docs/dashboard.md has no block of %s with %s", language, word)
	return ""
}

// exactly replaces a text that must occur.
func exactly(t *testing.T, text, old, replacement string) string {
	t.Helper()
	require.Contains(t, text, old)
	return strings.ReplaceAll(text, old, replacement)
}

// startNginx runs an nginx that listens on a unix socket, and ends it after the test.
func startNginx(t *testing.T, server string) (socket string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx")
	}
	require.NoError(t, err, "no nginx: apt-get install --no-install-recommends nginx")
	dir := t.TempDir()
	socket = filepath.Join(dir, "front")
	// One process, of this user. It compresses, like Debian's.
	config := "daemon off; master_process off; pid pid; error_log stderr warn;\nevents {}\nhttp {\naccess_log off; gzip on;\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += of + "_temp_path temp_" + of + ";\n"
	}
	config += "server {\nlisten unix:" + socket + ";\n" + server + "}\n}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600))
	var out bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
	cmd.Stdout, cmd.Stderr = &out, &out
	// It must not outlive a killed test binary, and ends with the thread that started it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("nginx: %s", out.String())
		}
	})
	up := false
	proctest.Await(t, patience, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		c, err := net.Dial("unix", socket)
		if up = err == nil; up {
			_ = c.Close()
		}
		return up
	}, "nginx")
	if !up {
		<-ended
		t.Fatalf("nginx has ended: %s\n%s", out.String(), config)
	}
	return socket
}

// A proxy and a dashboard configured as documented: everything works under the path, and only
// the proxy identifies users.
func TestWebBehindNginx(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	d.Push("mail", "Count", 1)
	address, passed := listening(t, "127.0.0.1")
	text, err := os.ReadFile("../../docs/dashboard.md")
	require.NoError(t, err)
	args := strings.Fields(strings.Trim(regexp.MustCompile("`resqued web --path-prefix [^`]*`").FindString(string(text)), "`"))
	require.NotEmpty(t, args)
	require.Equal(t, []string{"resqued", "web"}, args[:2])
	cmd := d.Command(context.Background(), nil, append(args[1:], "--tokens", "", "--listen", "fd:3")...)
	cmd.ExtraFiles = []*os.File{passed}
	var out bytes.Buffer
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("resqued: %s", out.String())
		}
	})

	passwords := filepath.Join(t.TempDir(), "passwords")
	require.NoError(t, os.WriteFile(passwords, []byte("deploy:{PLAIN}secret\neve:{PLAIN}secret\n"), 0o600))
	config := documented(t, "nginx", "location")
	config = exactly(t, config, "127.0.0.1:5678", address)
	config = exactly(t, config, "/etc/nginx/jobs.htpasswd", passwords)
	client := dialing("unix", startNginx(t, config))

	const site, queue = "admin.example.com:8080", "/jobs/queues/mail"
	type sent map[string]string
	type got struct {
		StatusCode int
		Header     http.Header
	}
	ask := func(who, method, path string, form url.Values, headers sent) (got, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+site+path, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html")
		if form != nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", "http://"+site) // it is not https: browsers send no Sec-Fetch-Site
		}
		if who != "" {
			r.SetBasicAuth(who, "secret")
		}
		for name, value := range headers {
			r.Header[name] = []string{value} // as it is written
		}
		if host := headers["Host"]; host != "" {
			r.Host = host
			delete(r.Header, "Host")
		}
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return got{answer.StatusCode, answer.Header}, string(body)
	}
	get := func(who, path string, headers sent) (got, string) {
		t.Helper()
		return ask(who, http.MethodGet, path, nil, headers)
	}

	t.Log("pages and what they load")
	answer, _ := get("", "/jobs/", nil)
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	require.Equal(t, `Basic realm="jobs"`, answer.Header.Get("WWW-Authenticate"))
	answer, _ = get("deploy", "/jobs", nil)
	require.Equal(t, http.StatusMovedPermanently, answer.StatusCode)
	answer, page := get("deploy", "/jobs/", nil)
	require.Equal(t, http.StatusOK, answer.StatusCode, page)
	addresses := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]+)`).FindAllStringSubmatch(page, -1) {
		addresses[strings.ReplaceAll(m[1], "&amp;", "&")] = true
	}
	kinds := map[string]int{}
	for path := range maps.Keys(addresses) {
		require.True(t, strings.HasPrefix(path, "/jobs/"), path)
		answer, body := get("deploy", path, nil)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", path, body)
		require.NotEmpty(t, body, path)
		kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
		kinds[kind]++
	}
	require.Positive(t, kinds["text/css"], kinds)
	require.Positive(t, kinds["text/javascript"], kinds)
	require.Greater(t, kinds["text/html"], 5, kinds)
	answer, _ = get("deploy", "/", nil)
	require.Equal(t, "nginx", strings.Split(answer.Header.Get("Server"), "/")[0])
	require.Equal(t, http.StatusNotFound, answer.StatusCode, "beside the path")

	t.Log("what has not changed is not sent again")
	for _, accepted := range []string{"identity", "gzip"} {
		seen := 0
		proctest.Await(t, patience, func() bool { // a sample may come in between, and change the page
			answer, body := get("deploy", queue, sent{"Accept-Encoding": accepted})
			require.Equal(t, http.StatusOK, answer.StatusCode, body)
			tag := answer.Header.Get("Etag")
			require.NotEmpty(t, tag)
			require.Equal(t, accepted == "gzip", answer.Header.Get("Content-Encoding") == "gzip")
			answer, body = get("deploy", queue, sent{"Accept-Encoding": accepted, "If-None-Match": tag})
			if seen = answer.StatusCode; seen == http.StatusNotModified {
				require.Empty(t, body)
			}
			return seen == http.StatusNotModified
		}, "a page that is as before, %s", accepted)
	}

	t.Log("who may change things")
	act := func(who, what string, headers sent) (got, string) {
		t.Helper()
		return ask(who, http.MethodPost, queue, url.Values{"act": {what}}, headers)
	}
	answer, page = act("deploy", "pause", nil)
	require.Equal(t, http.StatusSeeOther, answer.StatusCode, page)
	to, err := url.Parse(answer.Header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, queue, to.Path)
	require.Contains(t, []string{"", site}, to.Host)
	_, page = get("deploy", "/jobs/api/v1/events", sent{"Accept": "application/json"})
	require.Contains(t, page, `"by":"deploy@127.0.0.1"`)
	for _, name := range []string{"X-Forwarded-User", "x-forwarded-user", "X_Forwarded_User"} {
		answer, page = act("eve", "resume", sent{name: "deploy"})
		require.Equal(t, http.StatusForbidden, answer.StatusCode, page)
		require.NotContains(t, page, "proxy", "she is known, and is not an operator")
		answer, _ = get("", "/jobs/", sent{name: "deploy"})
		require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	}
	for _, from := range []string{"http://evil.example", "http://admin.example.com", "null"} {
		answer, page = act("deploy", "resume", sent{"Origin": from})
		require.Equal(t, http.StatusForbidden, answer.StatusCode, "%s: %s", from, page)
	}
	answer, page = get("deploy", "/jobs/", sent{"Host": "evil.example"})
	require.Equal(t, http.StatusMisdirectedRequest, answer.StatusCode, page)
	_, page = get("deploy", "/jobs/api/v1/events", sent{"Accept": "application/json"})
	require.NotContains(t, page, `"by":"eve`)

	t.Log("past the proxy")
	client = dialing("tcp", address)
	answer, _ = get("", "/jobs/", nil)
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
}

// A socket passed by systemd wins over --listen if it is meant for this process.
func TestWebOfAPassedSocket(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	address, passed := listening(t, "127.0.0.1")
	activated := func(ctx context.Context, pid string, file *os.File, args ...string) *exec.Cmd {
		web := d.Command(ctx, nil, append([]string{"web", "--tokens", ""}, args...)...)
		web.Args = append([]string{"sh", "-c", "LISTEN_PID=" + pid + ` exec "$0" "$@"`}, append([]string{web.Path}, web.Args[1:]...)...)
		shell, err := exec.LookPath("sh")
		require.NoError(t, err)
		web.Path = shell
		web.Env = append(web.Env, "LISTEN_FDS=1")
		web.ExtraFiles = []*os.File{file}
		return web
	}
	beside := filepath.Join(t.TempDir(), "web")
	client := dialing("tcp", address)
	client.Timeout = patience // where it serves another one, requests wait in this one for good
	w := startWeb(t, activated(context.Background(), "$$", passed, "--listen", "unix:"+beside), client)
	require.NoFileExists(t, beside)
	code, page := w.ask(http.MethodGet, "/queues", "")
	require.Equal(t, http.StatusOK, code, page)

	t.Log("the socket outlives the process: who connects meanwhile waits")
	w.kill()
	answered := make(chan int, 1)
	go func() { code, _ := w.ask(http.MethodGet, "/healthz", ""); answered <- code }()
	startWeb(t, activated(context.Background(), "$$", passed), client)
	require.Equal(t, http.StatusOK, <-answered)

	t.Log("one for another process is left alone")
	startWeb(t, activated(context.Background(), "1", passed, "--listen", "unix:"+beside), dialing("unix", beside))

	t.Log("one that others reach needs a login")
	_, open := listening(t, "0.0.0.0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := activated(ctx, "$$", open)
	out, err := refused.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, refused.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), "there is no login")
}

// An address that others reach needs a login; a name counts as the address that it resolves to.
func TestWebOfAHostNameNeedsALogin(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	refused := func(host string, under ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		web := d.Command(ctx, nil, "web", "--operator", "--tokens", "", "--listen", host+":0")
		if len(under) > 0 {
			program, err := exec.LookPath(under[0])
			require.NoError(t, err)
			web.Args = append(under, append([]string{web.Path}, web.Args[1:]...)...)
			web.Path = program
		}
		out, err := web.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 2, web.ProcessState.ExitCode(), "%q: %s", host, out)
		require.Contains(t, string(out), "there is no login")
	}
	refused("")
	refused("0.0.0.0")
	if os.Getuid() != 0 {
		t.Skip("the rest needs root: a name of this test's own")
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, os.WriteFile(hosts, []byte("0.0.0.0 jobs.example\n"), 0o644)) //nolint:gosec // as /etc/hosts
	refused("jobs.example", "unshare", "--mount", "sh", "-c", "mount --bind "+hosts+` /etc/hosts && exec "$0" "$@"`)
}

// dialAs connects to a unix socket as another user. Only one thread becomes that user, and ends.
func dialAs(path string, uid, gid int, groups bool) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if !groups {
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); e != 0 {
				err = e
				return
			}
		}
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
			err = e
			return
		}
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			err = e
			return
		}
		c, err = net.Dial("unix", path)
	}()
	<-done
	return c, err
}

// On a unix socket, the kernel identifies the user at the other end.
func TestWebOfAUnixSocket(t *testing.T) {
	t.Parallel()
	self, err := user.Current()
	require.NoError(t, err)
	d := harness.Start(t, harness.Options{Queues: "other"})
	dir := t.TempDir()
	socket := filepath.Join(dir, "web")
	w := startWeb(t, d.Command(context.Background(), nil, "web", "--tokens", "", "--operators", self.Username, "--listen", "unix:"+socket), dialing("unix", socket))
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o660, info.Mode())
	code, body := w.ask(http.MethodPost, "/api/v1/pause", "")
	require.Equal(t, http.StatusOK, code, body)
	code, body = w.ask(http.MethodGet, "/api/v1/events", "")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"by":"`+self.Username+`"`)
	if os.Getuid() != 0 {
		t.Skip("the rest needs root: another user's requests")
	}

	const other = 65534
	require.NoError(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711)))
	t.Log("who is not of its group cannot connect")
	_, err = dialAs(socket, other, other, false)
	require.ErrorIs(t, err, syscall.EACCES)
	t.Log("who is of its group looks")
	asOther := *w
	asOther.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return dialAs(socket, other, os.Getgid(), true)
	}}}
	code, body = asOther.ask(http.MethodGet, "/api/v1/queues", "")
	require.Equal(t, http.StatusOK, code, body)
	code, body = asOther.ask(http.MethodPost, "/api/v1/resume", "")
	require.Equal(t, http.StatusForbidden, code, body)
	code, body = w.ask(http.MethodPost, "/api/v1/resume", "")
	require.Equal(t, http.StatusOK, code, body)

	t.Log("a proxy that runs as the user that was named says who asks; another user cannot")
	socket = filepath.Join(dir, "proxied")
	w = startWeb(t, d.Command(context.Background(), nil, "web", "--tokens", "", "--operators", "ann", "--trusted-proxy", fmt.Sprint("unix:", other), "--user-header", "X-User", "--listen", "unix:"+socket), dialing("unix", socket))
	asOther.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return dialAs(socket, other, os.Getgid(), true)
	}}}
	asOther.header, w.header = http.Header{"X-User": {"ann"}}, http.Header{"X-User": {"ann"}}
	code, body = asOther.ask(http.MethodPost, "/api/v1/pause", "")
	require.Equal(t, http.StatusOK, code, body)
	code, body = w.ask(http.MethodPost, "/api/v1/resume", "")
	require.Equal(t, http.StatusForbidden, code, body)
	require.Contains(t, body, "not a trusted proxy")
	asOther.header = nil
	code, body = asOther.ask(http.MethodGet, "/api/v1/queues", "")
	require.Equal(t, http.StatusUnauthorized, code, body)
}
