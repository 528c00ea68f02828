package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// To kill a running job, a client leaves a request in resqued:kills:<proc>, under the job's token, which the
// process obeys. The program that ends the job's record, the process itself or its recovery, removes the request
// and answers in resqued:killed:<proc>.

var (
	requestKillScript = rdb.NewScript(Lua, "request_kill", "lib/base", "request_kill")
	dropKillsScript   = rdb.NewScript(Lua, "drop_kills", "lib/base", "drop_kills")
)

// The outcomes of RequestKill.
const (
	KillAsked = "asked"
	KillGone  = "gone" // the job does not run, or not any more
	KillDead  = "dead" // its process is being recovered and does not react
)

// The values of KillAnswer.How.
const (
	HowCancelled = "cancelled"        // it stopped when told to
	HowRecycled  = "process_recycled" // it did not stop, and its process is gone
	HowFinished  = "finished"         // it was faster, or succeeded anyway
)

// stateBatch bounds the jobs of one transaction of KillStates.
const stateBatch = 50

// RunName names one run of a job.
type RunName = rdb.RunName

// KillGrace is the default of KillRequest.Grace.
const KillGrace = 10 * time.Second

// KillRequest asks a process to end a running job.
type KillRequest struct {
	// Grace is how long the job may take to stop before its process is ended.
	Grace time.Duration
	// Requeue: a job that stops returns to the tail of its queue instead of failing.
	Requeue bool
}

// KillAnswer is how a job ended that was to be killed.
type KillAnswer struct {
	How      string
	Requeued bool
	// SiblingsLost counts other jobs of the process, not to be killed, that were neither finished nor put back
	// when it was ended.
	SiblingsLost int
}

// KillState is the progress of a kill.
type KillState struct {
	// Running: the job's record exists, so its code may still run.
	Running bool
	// Told: the job was told to stop. Stubborn: it ignores that, so its process will be ended.
	Told, Stubborn bool
	// Answer is nil until there is one. It stays nil if the job ended before its process saw the request.
	Answer *KillAnswer
}

// RequestKill asks the process of a running job to end it, and returns KillAsked, KillGone or KillDead. A new
// request replaces a pending one.
func (s *Store) RequestKill(ctx context.Context, run RunName, r KillRequest) (outcome string, err error) {
	raw, err := s.db.Eval(ctx, requestKillScript, s.db.Key(rdb.KeyInflight)+run.Proc,
		[]any{s.db.Prefix, run.Proc, run.Token, r.Grace.Milliseconds(), rdb.Flag(r.Requeue)})
	if err != nil {
		return "", fmt.Errorf("kill %s: %w", run, err)
	}
	outcome, _ = raw.(string)
	return outcome, nil
}

// Kills returns the pending requests for a process's jobs, by token.
func (s *Store) Kills(ctx context.Context, proc string) (map[string]KillRequest, error) {
	// On the connections for writes: a worker process needs no second pool.
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

// DropKills removes requests for jobs that no longer have a record.
func (s *Store) DropKills(ctx context.Context, proc string, tokens ...string) error {
	_, err := s.db.Eval(ctx, dropKillsScript, s.db.Key(rdb.KeyInflight)+proc, with([]any{s.db.Prefix, proc}, tokens...))
	return err
}

// KillStates returns the progress of some kills, in the order of runs.
func (s *Store) KillStates(ctx context.Context, runs []RunName) ([]KillState, error) {
	out := make([]KillState, 0, len(runs))
	for batch := range slices.Chunk(runs, stateBatch) {
		// Record and answer are read at the same moment.
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

// InfoAlone is the field of resqued:proc:<proc> that marks a process for a single suspect.
const InfoAlone = "alone"

// Fields of resqued:proc:<proc> with lists of tokens, separated by blanks: jobs told to stop, jobs for which the
// process is to be ended, and jobs that count as failed if it dies, because they were killed.
const (
	InfoKilled   = "killed"
	InfoStubborn = "stubborn"
	InfoFails    = "fails"
)

// names reports whether a list of tokens contains token.
func names(list any, token string) bool {
	text, _ := list.(string)
	return strings.Contains(" "+text+" ", " "+token+" ")
}

// parseKill reads the output of request_kill.lua; false = invalid.
func parseKill(value string) (KillRequest, bool) {
	grace, requeue, _ := strings.Cut(value, " ")
	ms, err := strconv.ParseInt(grace, 10, 64)
	if err != nil || requeue != "0" && requeue != "1" || ms < 0 || ms > int64(math.MaxInt64/time.Millisecond) {
		return KillRequest{}, false
	}
	return KillRequest{Grace: time.Duration(ms) * time.Millisecond, Requeue: requeue == "1"}, true
}

func (a *KillAnswer) encode() string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d", a.How, rdb.Flag(a.Requeued), a.SiblingsLost)
}

// parseAnswer reads an answer; nil = invalid.
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

// Stubborn reports whether the process is to be ended because this job does not stop.
func (p ProcInfo) Stubborn(token string) bool { return names(p.Fields[InfoStubborn], token) }
