// Package alerts tests the files of deploy/prometheus and deploy/grafana: with Prometheus's own parser and
// engine, and on the metrics of a real daemon. It is in this module so that Prometheus is not
// a dependency of resqued.
package alerts

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	folder    = "../../deploy/prometheus/"
	rulesFile = folder + "resqued.rules.yml"
	testsFile = folder + "resqued.rules.test.yml"
)

var promQL = parser.NewParser(parser.Options{})

// sample is a value at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// series is what a query reads.
type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// database are series in memory.
type database []series

func (d database) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{at: -1}
		for _, s := range d {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				set.list = append(set.list, storage.NewListSeries(s.labels, s.samples))
			}
		}
		return set
	}}, nil
}

type seriesSet struct {
	list []*storage.SeriesEntry
	at   int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// query evaluates an expression at a time.
func (d database) query(t *testing.T, expression string, at time.Time) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promQL})
	t.Cleanup(func() { _ = engine.Close() })
	q, err := engine.NewInstantQuery(context.Background(), d, nil, expression, at)
	require.NoError(t, err, expression)
	defer q.Close()
	v, err := q.Exec(context.Background()).Vector()
	require.NoError(t, err, expression)
	return slices.Clone(v)
}

// rules returns the alerts of the file.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// firing returns the alerts that fire at a time, as Prometheus writes them to the series ALERTS,
// if rules are evaluated at each step from the beginning.
func (d database) firing(t *testing.T, until time.Time, step time.Duration) []string {
	t.Helper()
	var fire []string
	for _, rule := range rules(t) {
		since := map[string]time.Time{}
		for at := time.Unix(0, 0); !at.After(until); at = at.Add(step) {
			active := map[string]time.Time{}
			for _, s := range d.query(t, rule.Expr, at) {
				b := labels.NewBuilder(s.Metric)
				b.Set(model.MetricNameLabel, "ALERTS").Set(labels.AlertName, rule.Alert).Set("alertstate", "firing")
				for name, value := range rule.Labels {
					b.Set(name, value)
				}
				name := b.Labels().String()
				begun, known := since[name]
				if !known {
					begun = at
				}
				active[name] = begun
			}
			since = active
		}
		for name, begun := range since {
			if until.Sub(begun) >= time.Duration(rule.For) {
				fire = append(fire, name)
			}
		}
	}
	return fire
}

// TestRules runs the tests of the rules like `promtool test rules`, and promtool itself if
// installed.
func TestRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(testsFile)
	require.NoError(t, err)
	var file struct {
		RuleFiles []string       `yaml:"rule_files"`
		Step      model.Duration `yaml:"evaluation_interval"`
		Tests     []struct {
			Name     string
			Interval model.Duration
			Series   []struct{ Series, Values string } `yaml:"input_series"`
			Checks   []struct {
				Expr string
				At   model.Duration `yaml:"eval_time"`
				Want []struct {
					Labels string
					Value  float64
				} `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	require.Equal(t, []string{"resqued.rules.yml"}, file.RuleFiles)
	fired := map[string]bool{}
	for _, test := range file.Tests {
		var d database
		for _, s := range test.Series {
			of, values, err := promQL.ParseSeriesDesc(s.Series + " " + s.Values)
			require.NoError(t, err)
			one := series{labels: of}
			for i, v := range values {
				if !v.Omitted {
					one.samples = append(one.samples, sample{int64(i) * time.Duration(test.Interval).Milliseconds(), v.Value})
				}
			}
			d = append(d, one)
		}
		for _, check := range test.Checks {
			require.Equal(t, `ALERTS{alertstate="firing"}`, check.Expr)
			want := []string{}
			for _, s := range check.Want {
				of, err := promQL.ParseMetric(s.Labels)
				require.NoError(t, err)
				want = append(want, of.String())
				fired[of.Get(labels.AlertName)] = true
			}
			require.ElementsMatch(t, want, d.firing(t, time.Unix(0, 0).Add(time.Duration(check.At)), time.Duration(file.Step)), "%s, after %s", test.Name, check.At)
		}
	}
	for _, rule := range rules(t) {
		require.True(t, fired[rule.Alert], "no test lets %s fire", rule.Alert)
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", testsFile).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
