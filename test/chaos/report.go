package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/resqued/resqued/test/chaos/check"
)

// report prints the results, and keeps the evidence unless all checks have passed.
func (c *chaos) report(results []check.Result, table []check.Times) (bool, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-20s %5s   %-21s   %s\n", "fault", "fired", "noticed: median/worst", "recovered: median/worst")
	fired := 0
	for _, t := range table {
		noticed := "-"
		if t.Fired > t.Unnoticed {
			noticed = span(t.NoticedMedian) + " / " + span(t.NoticedMax)
		}
		recovered := "-"
		if t.Fired > t.Unrecovered {
			recovered = span(t.RecoverMedian) + " / " + span(t.RecoverMax)
		}
		fmt.Fprintf(&b, "%-20s %5d   %-21s   %s", t.Kind, t.Fired, noticed, recovered)
		if t.Unrecovered > 0 {
			fmt.Fprintf(&b, "   %d times never", t.Unrecovered)
		}
		b.WriteByte('\n')
		fired += t.Fired
	}
	fmt.Fprintf(&b, "\n%d faults, %d pushes, %d runs, %s\n\n", fired, len(c.history.Pushes), len(c.history.Runs), c.clock())
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
	if err == nil && (!ok || c.o.keep) {
		err = c.keep(ids)
	}
	return ok, err
}
