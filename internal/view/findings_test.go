package view_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// failing returns the findings of a check that are not ok.
func failing(f *fixture, check string, c view.Checks) []string {
	f.Helper()
	all, err := view.Findings(f.Context(), f.store, nil, c)
	require.NoError(f, err)
	var texts []string
	checks := map[string]bool{}
	for _, one := range all {
		checks[one.Check] = true
		require.Equal(f, one.Status != view.FindingOK, one.Code != "", "%q of %s: what is not as it should be has a code", one.Code, one.Text)
		if one.Check == check && one.Status != view.FindingOK {
			texts = append(texts, one.Status+" "+one.Text)
		}
	}
	require.Len(f, checks, 7, "each check says something")
	return texts
}

// fixes returns what the findings of a check advise.
func fixes(f *fixture, check string) (fixes []string) {
	f.Helper()
	all, err := view.Findings(f.Context(), f.store, nil, view.Checks{})
	require.NoError(f, err)
	for _, one := range all {
		if one.Check == check && one.Fix != "" {
			fixes = append(fixes, one.Fix)
		}
	}
	return fixes
}

// TestFindingsNamesInCommands: a command that is suggested can be pasted into a shell, whatever the
// name of the queue is, and a single remaining finding is named, not counted.
func TestFindingsNamesInCommands(t *testing.T) {
	views(t, func(f *fixture) {
		for i := range 5 {
			name := fmt.Sprintf("orphan-%d", i)
			if i == 7 {
				name = "*"
				f.push(name, `{"class":"A","args":[]}`)
			}
			f.push(name, `{"class":"A","args":[]}`)
		}
		f.push("x; touch /tmp/it's", `{"class":"A","args":[]}`)
		require.Contains(f, fixes(f, "queues"), `work --queues 'x; touch /tmp/it'\''s'`)
		require.NotContains(f, fmt.Sprint(failing(f, "queues", view.Checks{})), "more")
	})
}

func TestShell(t *testing.T) {
	sh, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash: ", err)
	}
	for _, text := range []string{
		"mail", "*", "", "~", "-x", "web-1:42", "a b", "it's", "$(id)", "`id`", "a;b", "!low", "é🎉",
		"q\n\x1b[2J", "\xff'\\1", "\u202eabc", "#x", "{a,b}",
	} {
		word := view.Shell(text)
		out, err := exec.Command(sh, "--norc", "-c", "printf %s "+word).Output()
		require.NoError(t, err, word)
		if text == "-x" || text == "" {
			continue // printf's own
		}
		require.Equal(t, text, string(out), word)
		require.Equal(t, word, wire.Printable(word, 0), "the terminal shows it as it is")
	}
	require.Equal(t, "mail_high:2", view.Shell("mail_high:2"))
	require.Equal(t, "''", view.Shell(""))
}

// A runner that cannot be started is named once for its master, with the reason.
func TestFindingsOfRunners(t *testing.T) {
	views(t, func(f *fixture) {
		f.putMaster(map[string]string{
			"state": "running", "slots": "1", "threads": "4", "queues": "q",
			store.FieldTemplates: `[{"runner":"app","state":"failed","why":"exit code 1;\nno database","restarts":3},{"runner":"other","state":"ready"}]`,
		})
		texts := failing(f, "daemons", view.Checks{})
		require.Len(f, texts, 1)
		require.Contains(f, texts[0], "cannot start runner app: exit code 1; no database")
		require.Regexp(f, "^fail ", texts[0])
		f.putMaster(map[string]string{"state": "running", "slots": "1", "threads": "4", "queues": "q", store.FieldTemplates: `{"not":"a list"}`})
		require.Empty(f, failing(f, "daemons", view.Checks{}))
	})
}

// A daemon without recent heartbeats is reported before its lease has ended.
func TestFindingsOfASilentDaemon(t *testing.T) {
	views(t, func(f *fixture) {
		_, err := f.store.PutMaster(f.Context(), store.MasterInfo{ID: "web-9:b:9-9", TTL: time.Hour, Fields: map[string]string{
			"state": "running", "host": "web-9", "slots": "1", "threads": "1", "queues": "q", "lease_ms": "35000",
		}})
		require.NoError(f, err)
		beaten := func(ago time.Duration) {
			f.do("ZADD", "resqued:procs", fmt.Sprint(time.Now().Add(35*time.Second-ago).UnixMilli()), "web-9:b:9-9:0.1")
		}
		beaten(time.Second)
		require.NotContains(f, fmt.Sprint(failing(f, "daemons", view.Checks{})), "web-9:9")
		beaten(20 * time.Second)
		require.Contains(f, fmt.Sprint(failing(f, "daemons", view.Checks{})), "warn web-9:9 has not been heard of for 2")
		require.Contains(f, fixes(f, "daemons"), "hosts dead web-9")
	})
}

// A job that does not stop is reported with its process, unless it still has time to stop.
func TestFindingsOfStubbornJobs(t *testing.T) {
	views(t, func(f *fixture) {
		stubborn := f.reserve(`{"class":"Slow","args":[1]}`)
		told := f.reserve(`{"class":"Told","args":[1]}`)
		f.do("HSET", "resqued:proc:"+proc, store.InfoKilled, told.Token)
		require.NotContains(f, fmt.Sprint(failing(f, "daemons", view.Checks{})), "does not stop")
		f.do("HSET", "resqued:proc:"+proc, store.InfoKilled, stubborn.Token+" "+told.Token, store.InfoStubborn, stubborn.Token)
		texts := failing(f, "daemons", view.Checks{})
		require.Len(f, texts, 1)
		require.Regexp(f, `^warn Slow of q does not stop, though it was told to or its time is over \(it has run for .*\): process \d+ of \S+ takes no new jobs, and is ended, with 1 job next to it if they take long$`, texts[0])
		require.Contains(f, fmt.Sprint(fixes(f, "daemons")), "docs/handlers.md")

		tokens := stubborn.Token
		for i := range 6 {
			tokens += " " + f.reserve(fmt.Sprintf(`{"class":"Slow","args":[%d]}`, i+2)).Token
		}
		f.do("HSET", "resqued:proc:"+proc, store.InfoStubborn, tokens)
		texts = failing(f, "daemons", view.Checks{})
		require.Contains(f, texts, "warn 2 jobs more that do not stop")
	})
}

// Data that is thrown away anyway need not survive the server.
func TestFindingsOfAThrowawayServer(t *testing.T) {
	const loses = "it logs no writes"
	views(t, func(f *fixture) {
		if server, err := f.store.Server(f.Context()); err != nil || server.AppendOnly == nil || *server.AppendOnly {
			f.Skip("this server does not say that it logs no writes")
		}
		require.Contains(f, fmt.Sprint(failing(f, "redis", view.Checks{})), loses)
		require.NotContains(f, fmt.Sprint(failing(f, "redis", view.Checks{Throwaway: true})), loses)
	})
}

func TestFindings(t *testing.T) {
	views(t, func(f *fixture) {
		f.putMaster(map[string]string{"state": "running", "slots": "2", "threads": "4", "queues": "q", "settings": `{"a":"1"}`})
		for _, check := range []string{"daemons", "queues", "unique", "locks", "parked", "schedules"} {
			require.Empty(f, failing(f, check, view.Checks{}), check)
		}

		for i := range 8 {
			name := fmt.Sprintf("orphan-%d", i)
			if i == 7 {
				name = "*"
				f.push(name, `{"class":"A","args":[]}`)
			}
			f.push(name, `{"class":"A","args":[]}`)
		}
		texts := failing(f, "queues", view.Checks{})
		require.Len(f, texts, 6, "the five longest are named, the others counted")
		require.Equal(f, "fail *: 2 jobs wait, and nothing works this queue", texts[0])
		require.Contains(f, fixes(f, "queues"), `work --queues '\*'`)
		require.Equal(f, "fail orphan-0: 1 job waits, and nothing works this queue", texts[1])
		require.Equal(f, "fail 3 queues more with jobs are worked by nothing", texts[5])

		for i, settings := range []string{`{"a":"1"}`, `{"a":"2"}`} {
			_, err := f.store.PutMaster(f.Context(), store.MasterInfo{
				ID: fmt.Sprintf("web-%d:b:9-9", i+2), TTL: time.Hour,
				Fields: map[string]string{"state": "paused", "host": "web", "version": fmt.Sprint("v", i), "settings": settings, "threads": "1", "slots": "1"},
			})
			require.NoError(f, err)
		}
		texts = failing(f, "daemons", view.Checks{Differ: func(usual, other string) []string {
			if usual == other {
				return nil
			}
			return []string{"a"}
		}})
		require.Contains(f, texts, "warn web-2:9 is paused")
		require.Contains(f, fixes(f, "daemons"), "workers resume web-2:9")
		require.Contains(f, texts, "fail web-3:9 has another a than the other daemons: see docs/reliability.md for what breaks")

		f.do("HSET", "resqued:parked", "vm:b:1-2:0.0#5", "1 f 1795000000000 - 0 4 14 9\nmailfailed is not a list{}")
		f.do("SET", "resqued:parked:vm:b:1-2:0.0#5", "{}")
		f.do("ZADD", "resqued:parking", 1795000000000, "vm:b:1-2:0.0#5")
		require.NotEmpty(f, failing(f, "parked", view.Checks{}))
	})
}
