package packages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// runners builds the runners' packages and a daemon, once.
var runners = sync.OnceValue(func() error {
	cmd := exec.Command("sh", "-c", `sh scripts/runners "$1/runners" "$2" && go build -o "$1/resqued" ./cmd/resqued`, "sh", folder, first)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// TestRunners installs each package into an empty folder. Its runner then performs a job of an
// application that consists of one file.
func TestRunners(t *testing.T) {
	t.Parallel()
	if os.Getenv(wanted) == "" {
		t.Skip("builds packages, which takes a while")
	}
	require.NoError(t, runners())
	for _, c := range []struct{ file, install, command, env, app, text string }{
		{
			file:    "resqued-runner-" + first + ".gem",
			install: `gem install --local --no-document --install-dir "$1" "$2"`,
			command: "DIR/bin/resqued-runner, ./app.rb", env: "GEM_HOME: DIR",
			app: "app.rb", text: `class Note; def self.perform(name) = File.write(name, ""); end`,
		},
		{
			file:    "resqued_runner-" + first + "-py3-none-any.whl",
			install: `/usr/bin/python3 -m pip --quiet install --no-index --target "$1" "$2"`,
			command: "DIR/bin/resqued-runner, app.py", env: "PYTHONPATH: DIR",
			app: "app.py", text: "import resqued\n@resqued.job('Note')\ndef note(name):\n    open(name, 'w').close()\n",
		},
		{
			file:    "resqued-runner-" + first + ".tgz",
			install: `npm install --offline --no-audit --no-fund --prefix "$1" "$2"`,
			command: "node, DIR/node_modules/.bin/resqued-runner, ./app.js", env: "NODE_ENV: production",
			app: "app.js", text: `exports.Note = (name) => require("fs").writeFileSync(name, "");`,
		},
	} {
		t.Run(c.app, func(t *testing.T) {
			t.Parallel()
			installed, app := t.TempDir(), t.TempDir()
			out, err := exec.Command("sh", "-c", c.install, "sh", installed, filepath.Join(folder, "runners", c.file)).CombinedOutput()
			require.NoError(t, err, string(out))
			require.NoError(t, os.WriteFile(filepath.Join(app, c.app), []byte(c.text), 0o644))
			config := "runners:\n  app: {command: [COMMAND], dir: APP, env: {ENV}}\nhandlers:\n  '*': {runner: app}\n"
			d := harness.Start(t, harness.Options{
				Binary: filepath.Join(folder, "resqued"),
				Config: strings.NewReplacer("COMMAND", strings.ReplaceAll(c.command, "DIR", installed), "APP", app, "ENV", strings.ReplaceAll(c.env, "DIR", installed)).Replace(config),
			})
			d.PushRaw("default", `{"class":"Note","args":["done"]}`)
			proctest.Await(t, patience, func() bool { _, err := os.Stat(filepath.Join(app, "done")); return err == nil }, "the job\n%s", d.Log())
		})
	}
}
