package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/test/system/harness"
)

const (
	root     = "../../"
	patience = time.Minute
)

// board is a dashboard of Grafana, with the fields that its import needs.
type board struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  source
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                source
		}
	}
}

type source struct{ Type, UID string }

var variable = regexp.MustCompile(`\$\w+`)

// grafana returns the dashboard, with ranges instead of the variable for them.
func grafana(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(root + "deploy/grafana/resqued.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), "$__rate_interval", "5m")), &b))
	return b
}

// TestGrafana checks the file against the known parts of the schema: Grafana itself does not run
// here.
func TestGrafana(t *testing.T) {
	t.Parallel()
	b := grafana(t)
	require.NotEmpty(t, b.UID)
	require.NotEmpty(t, b.Title)
	require.GreaterOrEqual(t, b.SchemaVersion, 36, "Grafana 10 migrates older ones")
	require.Len(t, b.Templating.List, 1)
	require.Equal(t, []string{"datasource", "datasource", "prometheus"}, []string{b.Templating.List[0].Name, b.Templating.List[0].Type, b.Templating.List[0].Query})
	from := source{"prometheus", "${datasource}"}
	require.LessOrEqual(t, len(b.Panels), 12)
	places, ids := map[[2]int]bool{}, map[int]bool{}
	for _, p := range b.Panels {
		require.Equal(t, "timeseries", p.Type)
		require.NotEmpty(t, p.Title)
		require.Equal(t, from, p.Datasource)
		require.False(t, ids[p.ID])
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Less(t, x, 24)
				require.False(t, places[[2]int{x, y}], "%s lies over another panel", p.Title)
				places[[2]int{x, y}] = true
			}
		}
		for i, target := range p.Targets {
			require.Equal(t, string(rune('A'+i)), target.RefID)
			require.Equal(t, from, target.Datasource)
			require.Empty(t, variable.FindString(target.Expr))
		}
	}
}

// scraped adds each series of an answer at a time.
func (d *database) scraped(t *testing.T, text string, at time.Time) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " ")
		of, err := promQL.ParseMetric(line[:i])
		require.NoError(t, err, line)
		value, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		require.NoError(t, err, line)
		n := slices.IndexFunc(*d, func(s series) bool { return labels.Equal(s.labels, of) })
		if n < 0 {
			*d, n = append(*d, series{labels: of}), len(*d)
		}
		(*d)[n].samples = append((*d)[n].samples, sample{at.UnixMilli(), value})
	}
}

// lacks returns what an expression reads and no series has: selectors, and labels that results
// are grouped by.
func (d database) lacks(t *testing.T, expression string) (missing []string) {
	t.Helper()
	e, err := promQL.ParseExpr(expression)
	require.NoError(t, err, expression)
	has := func(s *parser.VectorSelector, label string) bool {
		return slices.ContainsFunc(d, func(one series) bool {
			return (label == "" || one.labels.Has(label)) && !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) })
		})
	}
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if !has(s, "") {
			missing = append(missing, s.String())
		}
		for _, above := range path {
			if by, ok := above.(*parser.AggregateExpr); ok {
				for _, label := range by.Grouping {
					if !has(s, label) {
						missing = append(missing, s.String()+" by "+label)
					}
				}
			}
		}
		return nil
	})
	return missing
}

var legend = regexp.MustCompile(`{{(\w+)}}`)

// TestSamples: once something has happened, each expression of the rules, of the dashboard and of the manifest for KEDA
// finds samples among the metrics of a real server.
func TestSamples(t *testing.T) {
	t.Parallel()
	testlevel.Long(t)
	binary := filepath.Join(t.TempDir(), "resqued")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", root, "-o", binary, "./cmd/resqued").CombinedOutput()
	require.NoError(t, err, "%s", out)
	d := harness.Start(t, harness.Options{
		Binary: binary, Redis: redistest.Start(t, redistest.Options{}), Queues: "mail,paused", Workers: 2, JobsPerFork: 3,
		Env:    []string{"RESQUED_WITHIN=mail:1s"},
		Config: "handlers:\n  Good: {command: ['true']}\n  Bad: {command: ['false']}\n  Long: {command: [sleep, '1000']}\n",
	})
	ctx := t.Context()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	web := exec.Command(binary, "web", "--tokens", "", "--listen", "fd:3")
	web.Env = append(os.Environ(), "RESQUED_CONFIG=none", "REDIS_URL="+d.URL, "RESQUE_NAMESPACE="+d.Space, "RESQUED_WITHIN=mail:1s")
	web.ExtraFiles = []*os.File{file}
	require.NoError(t, web.Start())
	require.NoError(t, file.Close())
	t.Cleanup(func() { _ = web.Process.Kill(); _ = web.Wait() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func() string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+"/metrics", nil)
		require.NoError(t, err)
		answer, err := client.Do(r)
		if err != nil {
			return ""
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(text)
	}
	push := func(queue, class string) {
		d.PushRaw(queue, fmt.Sprintf(`{"class":%q,"args":[%d],"enqueued_at":%d}`, class, time.Now().UnixNano(), time.Now().Unix()-100))
	}
	proctest.Await(t, patience, func() bool { return strings.Contains(scrape(), "resqued_deaths_total 0\n") }, "the first sample")

	for range 4 {
		push("mail", "Good")
		push("mail", "Bad")
	}
	d.AwaitProcessed(8, patience)
	push("mail", "Long")
	push("mail", "Long")
	proctest.Await(t, patience, func() bool { return d.Client.LLen(ctx, d.Key("queue:mail")).Val() == 0 }, "the start of the long jobs")
	require.NoError(t, syscall.Kill(d.WorkerPIDs()[0], syscall.SIGKILL))
	for range 3 { // they wait behind the long ones
		push("mail", "Long")
	}
	push("paused", "Good")
	push("unserved", "Good")
	require.NoError(t, d.Client.Set(ctx, d.Key("pause:queue:paused"), "1", 0).Err())
	require.NoError(t, d.Client.SAdd(ctx, d.Key("queues"), "broken").Err())
	require.NoError(t, d.Client.Set(ctx, d.Key("queue:broken"), "text", 0).Err())
	require.NoError(t, d.Client.Set(ctx, d.Key("locket:job_locks:Good[1]"), "resqued:gone:boot:1-1:0.1#5", 0).Err())
	info := d.Client.InfoMap(ctx, "memory").Val()["Memory"]
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Client.ConfigSet(context.Background(), "maxmemory", "0").Err() })
	require.NoError(t, d.Client.ConfigSet(ctx, "maxmemory", strconv.FormatInt(used+used/15, 10)).Err())

	expressions := map[string][]string{} // with the labels of their legends
	for _, rule := range rules(t) {
		expressions[rule.Expr] = nil
	}
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				expressions[target.Expr] = append(expressions[target.Expr], label[1])
			}
			expressions[target.Expr] = append(expressions[target.Expr], "")
		}
	}
	expressions[kedaQuery(t)] = nil
	begun, now := time.Unix(1000, 0), time.Unix(1060, 0)
	var db database
	var missing []string
	proctest.Await(t, patience, func() bool {
		db, missing = nil, nil
		text := scrape()
		db.scraped(t, text, begun)
		db.scraped(t, text, now) // a rate needs two samples
		for expression, legends := range expressions {
			missing = append(missing, db.lacks(t, expression)...)
			if legends == nil {
				continue
			}
			found := db.query(t, expression, now)
			if len(found) == 0 {
				missing = append(missing, "a result of "+expression)
			}
			for _, label := range legends {
				if label != "" && len(found) > 0 && !found[0].Metric.Has(label) {
					missing = append(missing, label+" of "+expression)
				}
			}
		}
		return len(missing) == 0
	}, "samples; missing at last: %v", lazy{&missing})
}

// lazy is printed as what it points to at that time.
type lazy struct{ of *[]string }

func (l lazy) String() string { return strings.Join(*l.of, "; ") }

// kedaQuery returns the expression by which KEDA asks Prometheus.
func kedaQuery(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(root + "deploy/kubernetes/keda.yaml")
	require.NoError(t, err)
	documents := strings.Split(string(text), "\n---\n")
	var object struct {
		Spec struct {
			Triggers []struct {
				Type     string
				Metadata map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(documents[len(documents)-1]), &object))
	for _, trigger := range object.Spec.Triggers {
		if trigger.Type == "prometheus" {
			return trigger.Metadata["query"]
		}
	}
	t.Fatal("no trigger of the type prometheus")
	return ""
}

// TestManual: docs/operations.md lists each alert with its expression, and runbook_url leads to a heading.
func TestManual(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(root + "docs/" + name)
		require.NoError(t, err)
		return string(text)
	}
	_, table, found := strings.Cut(read("operations.md"), "\n## Alerts that matter\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.SplitN(strings.ReplaceAll(line, `\|`, "\x00"), "|", 5); strings.HasPrefix(line, "| `Resqued") {
			rows[strings.Trim(cells[1], " `")] = strings.ReplaceAll(cells[2], "\x00", "|")
		}
	}
	for _, rule := range rules(t) {
		want := fmt.Sprintf(" `%s`, %s ", rule.Expr, rule.For)
		require.Equal(t, want, rows[rule.Alert], rule.Alert)
		delete(rows, rule.Alert)
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"])
		require.NotEmpty(t, rule.Annotations["summary"])
		require.NotEmpty(t, rule.Annotations["description"])
		page, anchor, found := strings.Cut(strings.TrimPrefix(rule.Annotations["runbook_url"], "https://github.com/resqued/resqued/blob/main/docs/"), "#")
		require.True(t, found, rule.Alert)
		require.True(t, slices.ContainsFunc(strings.Split(read(page), "\n"), func(line string) bool {
			title := strings.ToLower(strings.TrimLeft(line, "# "))
			title = regexp.MustCompile(`[^\w -]`).ReplaceAllString(title, "")
			return strings.HasPrefix(line, "#") && strings.ReplaceAll(title, " ", "-") == anchor
		}), "%s: docs/%s has no heading #%s", rule.Alert, page, anchor)
	}
	require.Empty(t, rows, "not in the file")
	require.LessOrEqual(t, len(rules(t)), 10)
}
