package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
)

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "<1s", 999 * time.Millisecond: "<1s", time.Second: "1s", 59 * time.Second: "59s", 4 * time.Minute: "4m",
		47 * time.Hour: "47h", 48 * time.Hour: "2d", 800 * time.Hour: "33d",
	} {
		require.Equal(t, want, view.Age(d))
	}
	require.Empty(t, view.Since(time.Time{}, time.Now()))
	require.Equal(t, "<1s", view.Since(time.Now().Add(time.Hour), time.Now()), "a clock that is ahead is not a negative age")
	require.Equal(t, []string{"512", "4K", "212M", "1.1G"}, []string{view.Size(512), view.Size(4096), view.Size(222298112), view.Size(1181116006)})
	require.Equal(t, []string{"12ms", "4.2s"}, []string{milliseconds(12 * time.Millisecond), milliseconds(4240 * time.Millisecond)})
}

func TestTable(t *testing.T) {
	t.Parallel()
	l := &listing{columns: []column{{title: "NAME"}, {title: "N", right: true}, {title: "MORE", wide: true}}}
	l.add("é", nil, "é", "7", "x")
	l.add("long", nil, "long name", "1200", "")
	l.add("evil", nil, "a\x1b[2J\nb"+strings.Repeat("z", 200), "1", "")

	t.Run("columns are as wide as they must be, and cells are cut and printable", func(t *testing.T) {
		t.Parallel()
		lines := strings.Split((&output{flags: outputFlags{output: outTable}}).table(l), "\n")
		require.Len(t, lines, 5)
		for _, line := range lines[:4] {
			require.Equal(t, utf8.RuneCountInString(lines[0]), utf8.RuneCountInString(line), line)
		}
		require.Regexp(t, "^NAME +N$", lines[0])
		require.True(t, strings.HasPrefix(lines[1], "é   "), lines[1])
		require.True(t, strings.HasSuffix(lines[1], "     7"), lines[1])
		require.True(t, strings.HasSuffix(lines[2], "  1200"), lines[2])
		require.True(t, strings.HasPrefix(lines[3], `a\x1b[2J\nbzz`), lines[3])
		require.Contains(t, lines[3], "…")
	})
	t.Run("wide shows every column and all of a cell", func(t *testing.T) {
		t.Parallel()
		text := (&output{flags: outputFlags{output: outWide, noHeaders: true}}).table(l)
		require.NotContains(t, text, "MORE")
		require.Contains(t, text, strings.Repeat("z", 200))
		require.Contains(t, text, "—")
	})
	t.Run("colour is outside of the padding", func(t *testing.T) {
		t.Parallel()
		l := &listing{columns: []column{{title: "STATE", colour: queueColours}, {title: "X"}}}
		l.add("", nil, view.QueueRuns, "x")
		require.Equal(t, "STATE  X\n\x1b[32mrun\x1b[0m    x\n", (&output{coloured: true}).table(l))
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"work", "workers", "dev", "Mail", "reports"}
	for name, want := range map[string]string{
		"wor": "work", "mial": "Mail", "worker": "workers", "reprots": "reports", "dve": "dev", "x": "", "nothing": "", "work": "",
	} {
		require.Equal(t, want, nearest(name, known), name)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		args []string
		exit int
		want string
	}{
		"an error without advice": {errors.New("boom\x1b[2J"), nil, 1, `r: boom\x1b[2J` + "\n"},
		"advice follows the last line": {
			&problem{exit: 2, lines: []string{"one.", "two."}, hint: "Do it."}, nil, 2, "r: one.\nr: two. Do it.\n",
		},
		"JSON":      {usage("", "bad \u202e<x>"), []string{"-o", "json"}, 2, `{"error":{"code":"usage","message":"bad \u202e<x>","hint":""}}` + "\n"},
		"a wrapped": {fmt.Errorf("outer: %w", notFound("queue", "mial", []string{"mail"}, "r queues")), nil, 4, "r: no queue \"mial\". Did you mean \"mail\"?  See: r queues\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			a := &cli{args: c.args, output: output{name: "r", stderr: &stderr}}
			require.Equal(t, c.exit, a.report(c.err))
			require.Equal(t, c.want, stderr.String())
		})
	}
}

func TestEventLine(t *testing.T) {
	t.Parallel()
	job := &resqued.Job{Class: "Hello", Queue: "demo", Args: resqued.Args{[]byte(`"<world>"`)}}
	done := app.Ended{Job: job, Result: app.Done, Ran: 12 * time.Millisecond}
	failed := app.Ended{Job: job, Result: app.Failed, Err: errors.New("no\nluck\x07")}
	text, json := &eventWriter{mode: app.DevMode{}}, &eventWriter{mode: app.DevMode{JSON: true}}
	require.Equal(t, "done       Hello[\"<world>\"] 12ms\n", text.line(done))
	require.Equal(t, "failed     Hello[\"<world>\"] 0ms  no\n", text.line(failed))
	require.Equal(t, `{"event":"done","class":"Hello","args":["<world>"],"queue":"demo","ms":12}`+"\n", json.line(done))
	require.Equal(t, `{"event":"failed","class":"Hello","args":["<world>"],"queue":"demo","ms":0,"error":"no\nluck\u0007"}`+"\n", json.line(failed))
}

func z(member string) redis.Z { return redis.Z{Score: 1000, Member: member} }

// Names in Redis must not act on a terminal in any output format.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	server, ns := redistest.Shared(t), redistest.Namespace(t)
	redis, ctx := server.Client(t), t.Context()
	evil := "evil\x1b[2J\u009b31m\u202e\r\n\x07"
	payload := `{"class":"\u001b]0;x\u0007\u009b","args":["\u001b[2J\u202e` + "\u009b\u202e" + `"]}`
	require.NoError(t, redis.SAdd(ctx, ns+":queues", evil).Err())
	require.NoError(t, redis.RPush(ctx, ns+":queue:"+evil, payload, "\x1b[2J not json").Err())
	require.NoError(t, redis.SAdd(ctx, ns+":workers", "h\x1b:1:"+evil, evil).Err())
	require.NoError(t, redis.Set(ctx, ns+":worker:h\x1b:1:"+evil, `{"queue":"\u001b","run_at":"\u001b","payload":`+payload+`}`, 0).Err())
	proc := "h\x1b:b:1-2:0.1"
	require.NoError(t, redis.ZAdd(ctx, ns+":resqued:procs", z(proc)).Err())
	require.NoError(t, redis.HSet(ctx, ns+":resqued:proc:"+proc, "state", evil, "queues", evil, "host", evil).Err())
	require.NoError(t, redis.RPush(ctx, ns+":failed", `{"failed_at":"x","payload":`+payload+`,"exception":"\u001b","error":"a\r\n\u001b[2J",`+
		`"backtrace":["\u001b"],"worker":"\u001b","queue":"\u009b","retried_at":"\u001b"}`, "\x1b[2J").Err())

	verbs := [][]string{
		{"queues"},
		{"queues", "show", evil},
		{"queues", "x" + evil},
		{"workers"},
		{"workers", "show"},
		{"workers", "x" + evil},
		{"failed"},
		{"failed", "--flat"},
		{"failed", "show", ""},
		{"enqueue", evil, evil, "--queue", "q"},
		{evil},
		{"queues", "--" + evil},
		{"__complete", "queues", ""},
		{"__complete", "enqueue", ""},
		{"config", "check", "--queues", evil},
	}
	for _, verb := range verbs {
		for _, form := range []string{outTable, outWide, outJSON, outName} {
			var stdout, stderr bytes.Buffer
			a := &cli{
				handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: &stdout, stderr: &stderr},
				args: append([]string{"--redis-url", server.URL(), "-n", ns, "-o", form}, verb...),
			}
			if verb[0] == "__complete" {
				a.args = append([]string{verb[0], "--redis-url", server.URL(), "-n", ns}, verb[1:]...)
			}
			a.run(ctx)
			for _, r := range stdout.String() + stderr.String() {
				require.True(t, r == '\n' || r == '\t' && verb[0] == "__complete" || unicode.IsPrint(r), "%q -o %s wrote %q:\n%q\n%q", verb, form, r, stdout.String(), stderr.String())
			}
		}
	}
}
