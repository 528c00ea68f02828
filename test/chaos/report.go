package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/resqued/resqued/test/chaos/check"
)

// tableOf returns the times to notice and to recover, as Markdown.
func (c *chaos) tableOf(table []check.Times, texts map[string]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprint(w, "| fault\t| times\t| noticed after: median\t| worst\t| recovered after: median\t| worst\t| never\t|\n|---\t|---\t|---\t|---\t|---\t|---\t|---\t|\n")
	fired := 0
	for _, t := range table {
		fired += t.Fired
		noticed, recovered := t.Fired > t.Unnoticed, t.Fired > t.Unrecovered
		_, _ = fmt.Fprintf(w, "| %s (`%s`)\t| %d\t| %s\t| %s\t| %s\t| %s\t| %d\t|\n", texts[t.Kind], t.Kind, t.Fired,
			cell(noticed, t.NoticedMedian), cell(noticed, t.NoticedMax), cell(recovered, t.RecoverMedian), cell(recovered, t.RecoverMax), t.Unrecovered)
	}
	_ = w.Flush()
	fmt.Fprintf(&b, "\nFrom `%s`: %d faults, %d pushes, %d runs, %d jobs recovered, %s.\n", c.o.command(), fired,
		len(c.history.Pushes), len(c.history.Runs), c.recovered(), c.clock())
	return b.String()
}

func cell(known bool, d time.Duration) string {
	switch {
	case !known:
		return "–"
	case d < time.Millisecond:
		return "< 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// report prints the results, and keeps the evidence unless all checks have passed.
func (c *chaos) report(results []check.Result, table string) (bool, error) {
	var b strings.Builder
	b.WriteString("\n" + table + "\n")
	ok := true
	var ids []string
	for _, r := range results {
		fmt.Fprintln(&b, r)
		for _, v := range r.Violations {
			ok = false
			for _, id := range v.IDs {
				if !slices.Contains(ids, id) && len(ids) < 200 {
					ids = append(ids, id)
				}
			}
		}
	}
	if ok {
		fmt.Fprintf(&b, "\nall checks passed, seed %d\n", c.o.seed)
	} else {
		fmt.Fprintf(&b, "\nFAILED with seed %d; the evidence is in %s\nreplay: %s\n", c.o.seed, c.dir, c.o.command())
	}
	fmt.Print(b.String())
	err := os.WriteFile(filepath.Join(c.dir, "report.txt"), []byte(b.String()), 0o600)
	if err == nil && c.o.table != "" {
		err = os.WriteFile(c.o.table, []byte(table), 0o600)
	}
	if err == nil && (!ok || c.o.keep) {
		err = c.keep(ids)
	}
	return ok, err
}
