package fromfile_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/client/fromfile"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resqued.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func open(t *testing.T, file string, o client.Options) *client.Stores {
	t.Helper()
	stores, err := fromfile.Stores(file, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stores.Close()) })
	return stores
}

// Each job goes to the store where a daemon with the same file would find it.
func TestStores(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	file := write(t, `
stores:
  main: {redis_url: "`+a.URL()+`", namespace: one, queues: [mail]}
  bulk: {redis_url: "`+b.URL()+`", namespace: two, queues: [import], routes: [import, once, own]}
unique_queues: [once]
handlers:
  Mail: {command: [./mail], queue: mail}
  Import: {command: [./import], queue: import}
`)
	h := resqued.New()
	h.Register(resqued.Class{Name: "Own", Queue: "own", Handler: func(context.Context, *resqued.Job) error { return nil }})
	stores := open(t, file, client.Options{Handlers: h})
	require.Equal(t, []string{"main", "bulk"}, stores.Names())
	ctx := t.Context()
	for _, class := range []string{"Mail", "Import", "Own"} { // the file's and the program's
		_, err := stores.Enqueue(ctx, class, []int{1})
		require.NoError(t, err, class)
	}
	for range 2 {
		_, err := stores.Enqueue(ctx, "Other", []int{1}, client.Queue("once"))
		require.NoError(t, err)
	}
	_, err := stores.Enqueue(ctx, "Other", []int{1}, client.Queue("strange"))
	require.ErrorIs(t, err, client.ErrNoStore)
	at := func(s *redistest.Server, key string) int64 { return s.Client(t).LLen(ctx, key).Val() }
	require.EqualValues(t, 1, at(a, "one:queue:mail"))
	require.EqualValues(t, 1, at(b, "two:queue:import"))
	require.EqualValues(t, 1, at(b, "two:queue:own"))
	require.EqualValues(t, 1, at(b, "two:queue:once"), "it is a unique queue")
}

// RESQUED_STORE leaves one of several, with its own queues.
func TestOneOfSeveral(t *testing.T) {
	t.Setenv("RESQUED_STORE", "bulk")
	stores := open(t, write(t, "stores: {main: {queues: [mail]}, bulk: {namespace: b, queues: [import]}}"), client.Options{})
	require.Equal(t, []string{"bulk"}, stores.Names())
	_, err := stores.StoreOf("import")
	require.NoError(t, err)
	_, err = stores.StoreOf("mail")
	require.ErrorIs(t, err, client.ErrNoStore)
}

// A file without stores has one; an invalid or missing file is an error.
func TestOtherFiles(t *testing.T) {
	t.Parallel()
	a := redistest.Start(t, redistest.Options{})
	stores := open(t, write(t, "redis_url: "+a.URL()+"\nnamespace: one\nqueues: [mail]\n"), client.Options{})
	require.Equal(t, []string{"default"}, stores.Names())
	_, err := stores.Enqueue(t.Context(), "Other", []int{1}, client.Queue("any"))
	require.NoError(t, err)
	require.EqualValues(t, 1, a.Client(t).LLen(t.Context(), "one:queue:any").Val())

	// A server given only in the Options does not apply to the stores of the file.
	stores, err = fromfile.Stores(write(t, "stores: {one: {queues: [x]}}"), client.Options{CAFile: "none.pem"})
	require.NoError(t, err)
	require.NoError(t, stores.Close())

	_, err = fromfile.Stores(write(t, "stores: {main: {queus: [mail]}}"), client.Options{})
	require.ErrorContains(t, err, "queues")
	_, err = fromfile.Stores(filepath.Join(t.TempDir(), "none.yaml"), client.Options{})
	require.ErrorContains(t, err, "none.yaml\" (argument of Stores): no such file")
}

// Without a name, the file of RESQUED_CONFIG is used.
func TestFileOfTheEnvironment(t *testing.T) {
	t.Setenv("RESQUED_CONFIG", "")
	_, err := fromfile.Stores("", client.Options{})
	require.ErrorContains(t, err, "no configuration file")
	t.Setenv("RESQUED_CONFIG", write(t, "stores: {one: {redis_url: redis://a, queues: [x]}, two: {redis_url: redis://b, queues: [y]}}"))
	require.Equal(t, []string{"one", "two"}, open(t, "", client.Options{}).Names())
}
