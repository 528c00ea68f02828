package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// To end a running job, a client leaves a request in resqued:kills:<proc>,
// under the job's token. The process obeys, and whoever ends the job's record takes
// the request away and answers in resqued:killed:<proc>: the process itself, or who
// recovers it.

var (
	requestKillScript = rdb.NewScript(Lua, "request_kill", "lib/base", "request_kill")
	dropKillsScript   = rdb.NewScript(Lua, "drop_kills", "lib/base", "drop_kills")
)

// What became of a request to kill a job.
const (
	KillAsked = "asked"
	KillGone  = "gone" // the job does not run (any more)
	KillDead  = "dead" // its process is being recovered and does not obey
)

// How a job ended that was to be killed.
const (
	HowCancelled = "cancelled"        // it stopped when it was told to
	HowRecycled  = "process_recycled" // it did not, and its process is gone
	HowFinished  = "finished"         // it was faster, or did not care and succeeded
)

// stateBatch bounds the jobs of one transaction of KillStates.
const stateBatch = 50

// RunName names one run of a job.
type RunName = rdb.RunName

// KillRequest asks a process to end a running job.
type KillRequest struct {
	// Grace is how long the job may take to stop before its process has to go.
	Grace time.Duration
	// Requeue: a job that stops goes back to the tail of its queue, not to failed.
	Requeue bool
}

// KillAnswer is how a job ended that was to be killed.
type KillAnswer struct {
	How      string
	Requeued bool
	// SiblingsLost counts the jobs of the same process that were neither finished nor
	// put back when it had to go, and that were not to be killed.
	SiblingsLost int
}

// KillState is how far a kill has come.
type KillState struct {
	// Running: the job's record exists, so its code may still run.
	Running bool
	// Told: the job was told to stop. Stubborn: it ignores that, its process has to go.
	Told, Stubborn bool
	// Answer is nil as long as there is none; for ever, if the job ended before its
	// process had seen the request.
	Answer *KillAnswer
}

// RequestKill asks the process of a running job to end it, and returns KillAsked,
// KillGone or KillDead. A later request takes the place of one that waits.
func (s *Store) RequestKill(ctx context.Context, run RunName, r KillRequest) (outcome string, err error) {
	raw, err := s.db.Eval(ctx, requestKillScript, s.db.Key(rdb.KeyInflight)+run.Proc,
		[]any{s.db.Prefix, run.Proc, run.Token, r.Grace.Milliseconds(), rdb.Flag(r.Requeue)})
	if err != nil {
		return "", fmt.Errorf("kill %s: %w", run, err)
	}
	outcome, _ = raw.(string)
	return outcome, nil
}

// Kills returns what is wanted of the jobs of a process, by token.
func (s *Store) Kills(ctx context.Context, proc string) (map[string]KillRequest, error) {
	// By the client that writes: a worker process needs no second pool of connections.
	fields, err := s.db.Write.HGetAll(ctx, s.db.Key(keyKills)+proc).Result()
	if err != nil {
		return nil, fmt.Errorf("requests to kill jobs of %s: %w", proc, err)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	out := make(map[string]KillRequest, len(fields))
	for token, value := range fields {
		if r, ok := parseKill(value); ok {
			out[token] = r
		}
	}
	return out, nil
}

// DropKills removes requests for jobs that have no record any more.
func (s *Store) DropKills(ctx context.Context, proc string, tokens ...string) error {
	args := []any{s.db.Prefix, proc}
	for _, token := range tokens {
		args = append(args, token)
	}
	_, err := s.db.Eval(ctx, dropKillsScript, s.db.Key(rdb.KeyInflight)+proc, args)
	return err
}

// KillStates returns how far some kills have come, in the order of runs.
func (s *Store) KillStates(ctx context.Context, runs []RunName) ([]KillState, error) {
	out := make([]KillState, 0, len(runs))
	for len(runs) > 0 {
		batch := runs[:min(len(runs), stateBatch)]
		runs = runs[len(batch):]
		// Record and answer are seen as they were at one moment.
		records, answers := make([]*redis.BoolCmd, len(batch)), make([]*redis.StringCmd, len(batch))
		infos := make([]*redis.SliceCmd, len(batch))
		err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
			for i, run := range batch {
				records[i] = pipe.HExists(ctx, s.db.Key(rdb.KeyInflight)+run.Proc, run.Token)
				answers[i] = pipe.HGet(ctx, s.db.Key(keyKilled)+run.Proc, run.Token)
				infos[i] = pipe.HMGet(ctx, s.db.Key(keyProcInfo)+run.Proc, InfoKilled, InfoStubborn)
			}
		})
		if err != nil && !rdb.IsNil(err) {
			return nil, fmt.Errorf("look for killed jobs: %w", err)
		}
		for i, run := range batch {
			state := KillState{Running: records[i].Val(), Answer: parseAnswer(answers[i].Val())}
			if info := infos[i].Val(); len(info) == 2 {
				state.Told, state.Stubborn = names(info[0], run.Token), names(info[1], run.Token)
			}
			out = append(out, state)
		}
	}
	return out, nil
}

// InfoAlone is the field of resqued:proc:<proc> by which a process says that it is there
// for one suspect.
const InfoAlone = "alone"

// Fields of resqued:proc:<proc> that list tokens, with blanks between them: of the
// jobs that were told to stop, of those for which the process has to go, and of those that
// have failed if it dies, because they were killed.
const (
	InfoKilled   = "killed"
	InfoStubborn = "stubborn"
	InfoFails    = "fails"
)

// names reports whether a list of tokens has one of them.
func names(list any, token string) bool {
	text, _ := list.(string)
	return strings.Contains(" "+text+" ", " "+token+" ")
}

// parseKill reads what request_kill.lua wrote; false = it is something else.
func parseKill(value string) (KillRequest, bool) {
	grace, requeue, _ := strings.Cut(value, " ")
	ms, err := strconv.ParseInt(grace, 10, 64)
	if err != nil || requeue != "0" && requeue != "1" || ms < 0 || ms > int64(math.MaxInt64/time.Millisecond) {
		return KillRequest{}, false
	}
	return KillRequest{Grace: time.Duration(ms) * time.Millisecond, Requeue: requeue == "1"}, true
}

// encode is the answer as the scripts write it.
func (a *KillAnswer) encode() string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d", a.How, rdb.Flag(a.Requeued), a.SiblingsLost)
}

// parseAnswer reads it; nil = it is none.
func parseAnswer(value string) *KillAnswer {
	fields := strings.Fields(value)
	if len(fields) != 3 {
		return nil
	}
	lost, _ := strconv.Atoi(fields[2])
	return &KillAnswer{How: fields[0], Requeued: fields[1] == "1", SiblingsLost: lost}
}

// Killed reports whether a job of the process was told to stop.
func (p ProcInfo) Killed(token string) bool { return names(p.Fields[InfoKilled], token) }

// Stubborn reports whether the process has to go because a job of it does not stop.
func (p ProcInfo) Stubborn(token string) bool { return names(p.Fields[InfoStubborn], token) }
