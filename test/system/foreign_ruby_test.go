package system_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/test/system/harness"
)

const (
	// rubyPruneInterval is Resque.prune_interval; rubyPruneLock is how long the pruner's lock
	// lasts.
	rubyPruneInterval = 300 * time.Second
	rubyPruneLock     = 60 * time.Second
)

// rubyWorker is a stand-in for a worker of Ruby's Resque, 2.x or 3.x, without plugins. It sends
// the commands of lib/resque/worker.rb and lib/resque/data_store.rb in their order, and has a
// process that ps shows under a title of theirs. Each of its functions names the method that it
// follows.
type rubyWorker struct {
	client *redis.Client
	space  string
	host   string
	id     string
	body   *exec.Cmd
	stdin  io.Closer
	// pruned are the ids of the workers that it unregistered at its start.
	pruned []string
}

// startRuby starts a worker that listens to queues, a list as in Resque's QUEUES. With force it
// prunes although another worker has done so less than a minute ago. It follows Worker#work:
// startup, that is start_heartbeat, prune_dead_workers, register_worker.
func startRuby(ctx context.Context, client *redis.Client, space string, force bool, queues string) (*rubyWorker, error) {
	host, err := os.Hostname() // Worker#hostname: Socket.gethostname
	if err != nil {
		return nil, err
	}
	r := &rubyWorker{client: client, space: space, host: host}
	// Worker#procline: from now on it is one of worker_pids.
	r.body = exec.Command("sh", "-c", "read _", "resque-3.0.0: Waiting for "+queues)
	if r.stdin, err = r.body.StdinPipe(); err != nil {
		return nil, err
	}
	if err := r.body.Start(); err != nil {
		return nil, err
	}
	r.id = fmt.Sprintf("%s:%d:%s", host, r.body.Process.Pid, queues)
	if force {
		client.Del(ctx, r.key("pruning_dead_workers_in_progress"))
	}
	if err := r.startup(ctx, queues); err != nil {
		r.die()
		return nil, err
	}
	return r, nil
}

// attach returns the worker for an id, as Resque.workers does (Worker.find).
func attach(client *redis.Client, space, id string) (r *rubyWorker, queues string) {
	parts := strings.SplitN(id, ":", 3)
	return &rubyWorker{client: client, space: space, host: parts[0], id: id}, parts[2]
}

func (r *rubyWorker) startup(ctx context.Context, queues string) error {
	// Worker#start_heartbeat: remove_heartbeat, then heartbeat! in a thread.
	if err := r.client.HDel(ctx, r.key("workers:heartbeat"), r.id).Err(); err != nil {
		return err
	}
	now, err := r.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	if err := r.client.HSet(ctx, r.key("workers:heartbeat"), r.id, now.Format("2006-01-02T15:04:05-07:00")).Err(); err != nil {
		return err
	}
	if err := r.pruneDeadWorkers(ctx, queues); err != nil {
		return err
	}
	// DataStore::Workers#register_worker
	_, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, r.key("workers"), r.id)
		p.Set(ctx, r.key("worker:"+r.id+":started"), wire.FormatStart(time.Now()), 0)
		return nil
	})
	return err
}

func (r *rubyWorker) key(name string) string { return r.space + ":" + name }

// pruneDeadWorkers is Worker#prune_dead_workers under the lock of
// DataStore::Workers#acquire_pruning_dead_worker_lock.
func (r *rubyWorker) pruneDeadWorkers(ctx context.Context, queues string) error {
	locked, err := r.client.SetNX(ctx, r.key("pruning_dead_workers_in_progress"), r.id, rubyPruneLock).Result()
	if err != nil || !locked {
		return err
	}
	all, err := r.client.SMembers(ctx, r.key("workers")).Result() // Worker.all
	if err != nil {
		return err
	}
	known, err := rubyWorkerPIDs()
	if err != nil {
		return err
	}
	expired, err := r.expired(ctx)
	if err != nil {
		return err
	}
	for _, id := range expired {
		text := fmt.Sprintf("Worker %s did not gracefully exit while processing <Unknown Job>", id)
		if err := r.unregister(ctx, id, "Resque::PruneDeadWorkerDirtyExit", text); err != nil {
			return err
		}
		r.pruned = append(r.pruned, id)
	}
	for _, id := range all {
		if slices.Contains(expired, id) {
			continue
		}
		parts := strings.Split(id, ":") // host, pid, worker_queues_raw = worker.id.split(':')
		if len(parts) < 3 || parts[2] == "" {
			return fmt.Errorf("worker id %q: undefined method `split' for nil", id)
		}
		mine := strings.Split(queues, ",")
		if !slices.Contains(mine, "*") && !equalSets(mine, strings.Split(parts[2], ",")) {
			continue
		}
		if parts[0] != r.host || known[parts[1]] {
			continue
		}
		if err := r.unregister(ctx, id, "Resque::DirtyExit", "Job still being processed"); err != nil {
			return err
		}
		r.pruned = append(r.pruned, id)
	}
	return nil
}

func equalSets(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// expired is Worker.all_workers_with_expired_heartbeats.
func (r *rubyWorker) expired(ctx context.Context) (ids []string, err error) {
	beats, err := r.client.HGetAll(ctx, r.key("workers:heartbeat")).Result()
	if err != nil {
		return nil, err
	}
	now, err := r.client.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	for id, text := range beats {
		beat, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("heartbeat of %s: %w", id, err) // Time.parse raises, too
		}
		if now.Sub(beat) > rubyPruneInterval {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

var (
	rubyTitle = regexp.MustCompile(`resque:work|resque:\sStarting|resque-[0-9]`)
	rubyWeb   = "resque-web"
)

// rubyWorkerPIDs is Worker#linux_worker_pids, which parses the output of ps and grep.
func rubyWorkerPIDs() (map[string]bool, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid,command").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	pids := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 && rubyTitle.MatchString(line) && !strings.Contains(line, rubyWeb) {
			pids[fields[0]] = true
		}
	}
	return pids, nil
}

// unregister is Worker#unregister_worker: it fails the job that the worker holds and deletes
// its keys.
func (r *rubyWorker) unregister(ctx context.Context, id, exception, text string) error {
	working, err := r.client.Get(ctx, r.key("worker:"+id)).Result() // Worker#processing
	if ignoreNil(err) != nil {
		return err
	}
	if working != "" {
		var job struct {
			Queue   string          `json:"queue"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal([]byte(working), &job); err != nil {
			return fmt.Errorf("worker:%s: %w", id, err)
		}
		record := wire.Failure{
			FailedAt: time.Now(), Payload: job.Payload, Exception: exception, Error: text, Worker: id, Queue: job.Queue,
		}
		if err := r.client.RPush(ctx, r.key("failed"), record.Encode()).Err(); err != nil { // Job#fail
			return err
		}
	}
	_, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error { // DataStore::Workers#unregister_worker
		p.SRem(ctx, r.key("workers"), id)
		p.Del(ctx, r.key("worker:"+id))
		p.Del(ctx, r.key("worker:"+id+":started"))
		p.HDel(ctx, r.key("workers:heartbeat"), id)
		p.Del(ctx, r.key("stat:processed:"+id))
		p.Del(ctx, r.key("stat:failed:"+id))
		return nil
	})
	return err
}

// once is Worker#work_one_job: it works one job of any existing queue except those in spare,
// which "!" excludes. It performs a job by noting its number, as the jobs of the test program
// do.
func (r *rubyWorker) once(ctx context.Context, spare ...string) (worked bool, err error) {
	if err := ignoreNil(r.client.Get(ctx, r.key("pause-all-workers")).Err()); err != nil { // Resque::Worker#paused?
		return false, err
	}
	queues, err := r.client.SMembers(ctx, r.key("queues")).Result()
	if err != nil {
		return false, err
	}
	slices.Sort(queues)
	for _, queue := range queues {
		if slices.Contains(spare, queue) {
			continue
		}
		payload, err := r.client.LPop(ctx, r.key("queue:"+queue)).Result() // Worker#reserve
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, err
		default:
			return true, r.work(ctx, queue, payload)
		}
	}
	return false, nil
}

func (r *rubyWorker) work(ctx context.Context, queue, payload string) error {
	// Worker#working_on
	if err := r.client.Set(ctx, r.key("worker:"+r.id), wire.Running(queue, time.Now(), "", []byte(payload)), 0).Err(); err != nil {
		return err
	}
	var job struct {
		Args []int `json:"args"`
	}
	if err := json.Unmarshal([]byte(payload), &job); err != nil {
		return err
	}
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error { // Job#perform
		p.HIncrBy(ctx, r.key("test:ran"), strconv.Itoa(job.Args[0]), 1)
		p.HIncrBy(ctx, r.key("test:ran-by"), "ruby", 1)
		return nil
	})
	if err != nil {
		return err
	}
	_, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error { // Worker#done_working
		p.Del(ctx, r.key("worker:"+r.id))
		p.IncrBy(ctx, r.key("stat:processed"), 1)
		p.IncrBy(ctx, r.key("stat:processed:"+r.id), 1)
		return nil
	})
	return err
}

// stop ends the worker normally: Worker#work ends with unregister_worker.
func (r *rubyWorker) stop(ctx context.Context) error {
	err := r.unregister(ctx, r.id, "Resque::DirtyExit", "Job still being processed")
	r.die()
	return err
}

// die ends its process as kill -9 does; its keys stay.
func (r *rubyWorker) die() {
	_ = r.stdin.Close()
	_ = r.body.Process.Kill()
	_ = r.body.Wait()
}

// ruby starts a worker that ends with the test.
func ruby(t *testing.T, d *harness.Daemon, force bool, queues string) *rubyWorker {
	t.Helper()
	r, err := startRuby(t.Context(), d.Client, d.Space, force, queues)
	require.NoError(t, err)
	t.Cleanup(r.die)
	return r
}
