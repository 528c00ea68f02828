package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/check"
)

// writeTable writes the table of times next to the evidence, and to the file given by the flag.
func (c *chaos) writeTable(table []check.Times, texts map[string]string) error {
	var b strings.Builder
	b.WriteString("| fault | times | noticed after: median | worst | recovered after: median | worst |\n|---|---|---|---|---|---|\n")
	fired := 0
	for _, t := range table {
		fired += t.Fired
		noticed, recovered := t.Fired > t.Unnoticed, t.Fired > t.Unrecovered
		fmt.Fprintf(&b, "| %s (`%s`) | %d | %s | %s | %s | %s |\n", texts[t.Kind], t.Kind, t.Fired,
			cell(noticed, t.NoticedMedian), cell(noticed, t.NoticedMax), cell(recovered, t.RecoverMedian), cell(recovered, t.RecoverMax))
	}
	fmt.Fprintf(&b, "\nFrom `%s`: %d faults, %d pushes, %d jobs recovered.\n", c.o.command(), fired, len(c.history.Pushes), c.recovered())
	for _, name := range []string{filepath.Join(c.dir, "table.md"), c.o.table} {
		if name == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
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
