package storetest

import (
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// budget is how many defects of a table a change tries at most: after one of all scripts, make test
// must not take twice as long.
const budget = 12

// chosen returns the defects to try: all of them at night, otherwise the first one and those of
// changed scripts, or of more than budget some.
func chosen(t *testing.T, all []Mutant) []Mutant {
	t.Helper()
	if testlevel.Nightly() {
		return all
	}
	touched, err := changedScripts()
	if testlevel.Base() != "" {
		require.NoError(t, err, "the commit %s", testlevel.Base())
	}
	if err != nil {
		t.Logf("only the first defect is tried, as git does not say which scripts have changed: %v", err)
	}
	some := all[:1:1]
	for _, m := range all[1:] {
		if touched[m[1]] {
			some = append(some, m)
		}
	}
	if n := len(some); n > budget {
		for i := range budget {
			some[i] = some[i*n/budget]
		}
		some = some[:budget]
	}
	t.Logf("%d of %d defects; make nightly tries all", len(some), len(all))
	return some
}

// changedScripts returns the names, without ".lua", of the scripts that differ from the base in more
// than lines of comments. The base is by default the newest commit that is six hours older than HEAD.
var changedScripts = sync.OnceValues(func() (map[string]bool, error) {
	out, err := exec.Command("sh", "-c", `
		base=${1:-$(git rev-list -1 --before=$(($(git log -1 --format=%ct) - 21600)) HEAD)} &&
		git diff --numstat -I "^ *--" "$base" -- ":(top)*.lua" && git ls-files --others --exclude-standard -- ":(top)*.lua"`, "sh", testlevel.Base()).Output()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for file := range strings.Lines(string(out)) {
		names[strings.TrimSuffix(path.Base(strings.TrimSpace(file)), ".lua")] = true
	}
	return names, nil
})
