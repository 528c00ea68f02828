package system_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// transcript records the commands of a client, without the namespace.
type transcript struct {
	space string

	mu    sync.Mutex
	lines []string
}

func (r *transcript) add(cmd redis.Cmder) {
	if name := cmd.Name(); name == "hello" || name == "client" {
		return // of the library's connections
	}
	words := make([]string, len(cmd.Args()))
	for i, arg := range cmd.Args() {
		word := fmt.Sprint(arg)
		if b, ok := arg.([]byte); ok {
			word = string(b)
		}
		word = strings.TrimPrefix(word, r.space+":")
		switch {
		case i == 0:
			word = strings.ToUpper(word)
		case strings.HasPrefix(word, `{"payload"`):
			word = "<running>" // it has the time in it
		case word == "" || strings.Contains(word, " "):
			word = "'" + word + "'"
		}
		words[i] = word
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, strings.Join(words, " "))
}

func (r *transcript) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n") + "\n"
}

func (r *transcript) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r *transcript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.add(cmd)
		return next(ctx, cmd)
	}
}

func (r *transcript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.add(cmd)
		}
		return next(ctx, cmds)
	}
}

// TestGemWorkerSpeaksAsTheGem checks that gemWorker sends Redis the commands of resque-locket.
func TestGemWorkerSpeaksAsTheGem(t *testing.T) {
	t.Parallel()
	const (
		payload = `{"class":"Hold","args":[1,0]}`
		lock    = `locket:job_locks:{"class"=>"Hold", "args"=>[1, 0]}`
		lock34  = `locket:job_locks:{"class" => "Hold", "args" => [1, 0]}`
	)
	for name, prepare := range map[string]func(t *testing.T, c *redis.Client, g *gemWorker){
		"empty": func(*testing.T, *redis.Client, *gemWorker) {},
		"run": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload).Err())
		},
		"run-ruby34": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload).Err())
			g.arrow = " => "
			g.perform = func() { require.EqualValues(t, 1, c.Exists(t.Context(), g.key(lock34)).Val()) }
		},
		"locked": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload).Err())
			require.NoError(t, c.Set(t.Context(), g.key(lock), "", time.Minute).Err())
		},
		"locked-by-resqued": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload).Err())
			require.NoError(t, c.Set(t.Context(), g.key(lock), "resqued:web1:1:1-1:0.0#1", time.Minute).Err())
		},
		"skipped": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload, payload).Err())
			require.NoError(t, c.HSet(t.Context(), g.key("locket:queue_lock_counters"), "mail", 2).Err())
		},
		"refreshed": func(t *testing.T, c *redis.Client, g *gemWorker) {
			require.NoError(t, c.RPush(t.Context(), g.key("queue:mail"), payload).Err())
			g.refresh = 10 * time.Millisecond
			g.perform = func() {
				// Until it was set again at least once.
				require.NoError(t, c.Expire(t.Context(), g.key(lock), 5*time.Second).Err())
				proctest.Await(t, patience, func() bool { return c.TTL(t.Context(), g.key(lock)).Val() > 5*time.Second }, "a refresh")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			spoken := &transcript{space: redistest.Namespace(t)}
			client := server.Client(t)
			client.AddHook(spoken)
			g := newGemWorker(t, client, spoken.space, "ruby1:7:mail,low", "mail", "low")
			prepare(t, server.Client(t), g)
			_, err := g.once(t.Context())
			require.NoError(t, err)
			text := spoken.text()
			if name == "refreshed" { // once or more often
				again := "SETEX '" + lock + "' 35 ''\n"
				for strings.Contains(text, again+again) {
					text = strings.ReplaceAll(text, again+again, again)
				}
			}
			golden, err := os.ReadFile(filepath.Join("testdata", "gem", name+".txt"))
			require.NoError(t, err)
			require.Equal(t, commands(string(golden)), text)
		})
	}
}

// commands returns a golden file without its comments.
func commands(golden string) string {
	var b strings.Builder
	for line := range strings.Lines(golden) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}
