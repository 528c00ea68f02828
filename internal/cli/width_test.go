package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/view"
)

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	l := &listing{columns: []column{
		{title: "QUEUE"}, {title: "STATE", colour: queueColours}, {title: "SIZE", right: true}, {title: "WHY"}, {title: "CLASS"},
	}}
	l.add("", nil, "mail", "paused", "1234567", "a very long reason that takes a lot of room", "Shop::Orders::SendMail")
	l.add("", nil, "日本語のキュー", "run", "7", "—", "É")
	table := func(width int, form string) string {
		return (&output{width: width, flags: outputFlags{output: form}}).table(l)
	}
	require.Equal(t, table(0, outTable), table(200, outTable), "it fits as it is")
	require.Contains(t, table(40, outWide), "a very long reason that takes a lot of room", "wide never cuts")
	require.Equal(t, ""+
		"QUEUE           STATE      SIZE  WHY                     CLASS\n"+
		"mail            paused  1234567  a very long reason th…  Shop::Orders::SendMail\n"+
		"日本語のキュー  run           7  —                       É\n", table(79, outTable), "the widest gives first")
	require.Equal(t, ""+
		"QUEUE           STATE      SIZE  WHY           CLASS\n"+
		"mail            paused  1234567  a very long…  Shop::Order…\n"+
		"日本語のキュー  run           7  —             É\n", table(59, outTable), "two equally wide give both")
	require.Equal(t, ""+
		"QUEUE         STATE      SIZE  WHY     CLASS\n"+
		"mail          paused  1234567  a ver…  Shop:…\n"+
		"日本語のキ…   run           7  —       É\n", table(45, outTable), "the name gives last")
	require.Equal(t, "QUEUE         STA\nmail          pa…\n日本語のキ…   run\n", strings.ReplaceAll(table(17, outTable), "ST…", "STA"), "what remains ends with the terminal")
}

// TestNarrowTerminalsLeaveIDs: ids stay long enough for commands to accept them.
func TestNarrowTerminalsLeaveIDs(t *testing.T) {
	t.Parallel()
	a := &output{width: 60, flags: outputFlags{output: outTable}}
	l := waitingListing()
	l.add("", nil, "a_queue_with_quite_a_long_name", "1", "0af6af819782", "Shop::Orders::SendMail", `["some","arguments"]`, "", "")
	require.Contains(t, a.table(l), " 0af6af819782 ")
}

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &listing{}
		n := rapid.IntRange(1, 7).Draw(t, "columns")
		for i := range n {
			l.columns = append(l.columns, column{
				title: fmt.Sprintf("C%d", i), right: rapid.Bool().Draw(t, "right"), fixed: rapid.Bool().Draw(t, "fixed"), whole: rapid.Bool().Draw(t, "whole"),
			})
		}
		for range rapid.IntRange(1, 4).Draw(t, "rows") {
			row := make([]string, n)
			for i := range row {
				row[i] = rapid.StringN(0, 60, -1).Draw(t, "cell")
			}
			l.add("", nil, row...)
		}
		width := rapid.IntRange(1, 120).Draw(t, "width")
		for line := range strings.Lines((&output{width: width, flags: outputFlags{output: outTable}}).table(l)) {
			if got := view.Width(strings.TrimSuffix(line, "\n")); got > width {
				t.Fatalf("%d columns, the terminal has %d: %q", got, width, line)
			}
		}
	})
}
