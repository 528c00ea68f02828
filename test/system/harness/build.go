// Package harness runs the built binary for the system tests: as a separate process, in a Redis
// namespace of its own, controlled by signals and observed from outside.
package harness

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// Environment variables that choose what is tested.
const (
	// raceEnv builds the daemon with the race detector.
	raceEnv = "RESQUED_TEST_RACE"
	// fullEnv runs the tests at full size.
	fullEnv = "RESQUED_TEST_FULL"
)

var buildDir string

// Main runs the tests of a package that uses this one; call it from TestMain with the function
// that runs them. It removes the binaries that they built. In unit tests it runs none. Unless
// -run selects others, it runs only the tests in short with -short, and those in nightly only at
// night.
//
// Unless -parallel is given, it runs four times as many tests in parallel as Go would: they
// mostly wait for processes.
func Main(short []string, nightly map[string]string, run func() int) int {
	if testlevel.Unit() {
		return 0
	}
	// A shell ignores these signals for a background job, and the tests' programs would inherit
	// that.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	flag.Parse()
	defaults := map[string]string{"test.parallel": strconv.Itoa(4 * runtime.GOMAXPROCS(0))}
	if testing.Short() {
		defaults["test.run"] = "^(" + strings.Join(short, "|") + ")$"
	}
	flag.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
	chosen := flag.Lookup("test.run").Value.String() != "" && os.Getenv("RERUN") == "" // gotestsum names what it runs again
	if !chosen && flag.Lookup("test.skip").Value.String() == "" && len(nightly) > 0 && !testlevel.Nightly() {
		var patterns []string
		for pattern := range nightly {
			test, part, _ := strings.Cut(pattern, "/")
			patterns = append(patterns, strings.TrimSuffix("^"+test+"$/"+part, "/"))
		}
		defaults["test.skip"] = strings.Join(patterns, "|")
	}
	for name, value := range defaults {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, "system tests:", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "resqued-system-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "system tests:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	buildDir = dir
	return run()
}

// Full reports whether the tests run at full size (make system).
func Full() bool { return os.Getenv(fullEnv) != "" }

// Race reports whether the daemon is built with the race detector (make race).
func Race() bool { return os.Getenv(raceEnv) != "" }

// Binary returns the path of the stock binary, which is built once per run.
func Binary(tb testing.TB) string {
	tb.Helper()
	return built(tb, stock)
}

// App returns the path of the program with handlers in Go.
func App(tb testing.TB) string {
	tb.Helper()
	return built(tb, app)
}

// NextVersion is the version of NextApp.
const NextVersion = "v9.9.9-next"

// NextApp returns the path of the same program in another version.
func NextApp(tb testing.TB) string {
	tb.Helper()
	return built(tb, next)
}

// Jobs returns how many jobs a test works instead of n: fewer with the race detector, which is
// several times slower.
func Jobs(n int) int {
	if Race() {
		return n / 4
	}
	return n
}

// Load returns the number of jobs for a test that needs thousands of waiting jobs.
func Load() int {
	if Full() {
		return Jobs(20_000)
	}
	return Jobs(6_000)
}

// Speed returns the time limit for what takes at most limit on an otherwise idle machine, as
// full-size runs have. Alongside other tests the limit is much longer, but finite.
func Speed(limit time.Duration) time.Duration {
	if Full() {
		return limit
	}
	return limit + patience
}

var (
	stock = sync.OnceValues(func() (string, error) { return build("resqued", "github.com/resqued/resqued/cmd/resqued") })
	app   = sync.OnceValues(func() (string, error) {
		return build("testapp", "github.com/resqued/resqued/test/system/testapp")
	})
	next = sync.OnceValues(func() (string, error) {
		return build("testapp-next", "github.com/resqued/resqued/test/system/testapp", "-X", "github.com/resqued/resqued/internal/cli.Version="+NextVersion)
	})
	newerApp = sync.OnceValues(func() (string, error) {
		known := rdb.Known()
		return build("testapp-newer", "github.com/resqued/resqued/test/system/testapp",
			fmt.Sprintf("-X github.com/resqued/resqued/internal/rdb.formats=%d:%d-%d", known.Newest+1, known.Oldest, known.Newest+1))
	})
)

// NewerApp returns the path of App as a later version, which writes keys in the next format and
// also reads this one's. The written data looks the same.
func NewerApp(tb testing.TB) string {
	tb.Helper()
	return built(tb, newerApp)
}

func built(tb testing.TB, once func() (string, error)) string {
	tb.Helper()
	path, err := once()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func build(name, pkg string, flags ...string) (string, error) {
	path := filepath.Join(buildDir, name)
	args := []string{"build", "-ldflags", strings.Join(append([]string{"-s", "-w"}, flags...), " "), "-o", path}
	if Race() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}
