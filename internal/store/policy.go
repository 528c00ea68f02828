package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// Fields of resqued:proc:<proc> that say what to do with the jobs of a dead worker process: the process that
// recovers them may have another configuration, or not know their classes.
const (
	infoOnDeath    = "on_worker_death"
	infoAtMostOnce = "at_most_once"
	infoResumes    = "resumes"
	infoMaxDeaths  = "max_deaths"
)

// The values of infoOnDeath.
const (
	deathRequeues = "requeue"
	deathFails    = "fail"
)

// Policy says what to do with the jobs of a dead worker process. With the zero value, they run again.
type Policy struct {
	// Fail: all of them fail.
	Fail bool
	// AtMostOnce are the registered names of classes whose jobs always fail.
	AtMostOnce []string
	// MaxDeaths is how many processes may die with a job; 0 = as the recovering process allows.
	MaxDeaths int
	// Resumes are the registered names of classes whose jobs always run again.
	Resumes []string
	// Fails are the tokens of killed jobs, which fail. A beat writes them.
	Fails []string
	// Elsewhere are the registered names of classes whose locks are kept in another Redis or in
	// PostgreSQL. Only the master that ends a process needs them: they are not written.
	Elsewhere []string
}

// Info returns the fields for Register that PolicyOf reads.
func (p Policy) Info() map[string]string {
	onDeath := deathRequeues
	if p.Fail {
		onDeath = deathFails
	}
	info := map[string]string{infoOnDeath: onDeath, infoAtMostOnce: classList(p.AtMostOnce)}
	if len(p.Resumes) > 0 {
		info[infoResumes] = classList(p.Resumes)
	}
	if p.MaxDeaths > 0 {
		info[infoMaxDeaths] = strconv.Itoa(p.MaxDeaths)
	}
	return info
}

func classList(classes []string) string {
	if classes == nil {
		classes = []string{}
	}
	text, err := json.Marshal(classes)
	if err != nil { // cannot fail for strings
		panic(err)
	}
	return string(text)
}

// PolicyOf returns the policy that a process has registered, and which of its jobs were killed. Missing or
// invalid parts come from fallback. An error means that Redis did not answer.
func (s *Store) PolicyOf(ctx context.Context, proc string, fallback Policy) (Policy, error) {
	names := []string{infoOnDeath, infoAtMostOnce, infoResumes, infoMaxDeaths, InfoFails}
	fields, err := s.db.Read.HMGet(ctx, s.db.Key(keyProcInfo)+proc, names...).Result()
	switch {
	case err == nil && len(fields) == len(names):
		return policyFrom(fieldsOf(names, fields), fallback), nil
	case err != nil && (rdb.Unreachable(err) || rdb.Waitable(err) || ctx.Err() != nil):
		return Policy{}, fmt.Errorf("read the policy of %s: %w", proc, err)
	}
	return fallback, nil // no hash, or no right to read it: asking again does not help
}

// policyFrom reads the fields of Info.
func policyFrom(fields map[string]string, p Policy) Policy {
	switch fields[infoOnDeath] {
	case deathRequeues:
		p.Fail, p.Resumes = false, nil
	case deathFails:
		p.Fail, p.Resumes = true, nil
	}
	for name, to := range map[string]*[]string{infoAtMostOnce: &p.AtMostOnce, infoResumes: &p.Resumes} {
		var classes []string
		if json.Unmarshal([]byte(fields[name]), &classes) == nil && classes != nil {
			*to = classes
		}
	}
	if n, err := strconv.Atoi(fields[infoMaxDeaths]); err == nil && n > 0 {
		p.MaxDeaths = n
	}
	if text, ok := fields[InfoFails]; ok {
		p.Fails = strings.Fields(text)
	}
	return p
}

// Listed reports whether a job's class, or one around it, is among some.
func Listed(classes []string, job Reserved) bool {
	if len(classes) == 0 {
		return false
	}
	envelope, err := wire.Parse(job.Payload, 0)
	if err != nil {
		return false // it has no class, so no code runs for it
	}
	return wire.ClassIn(classes, envelope.Names()...)
}

// Final returns why a job may not run again after any death, or "".
func (p Policy) Final(job Reserved) string {
	switch {
	case Listed(p.AtMostOnce, job):
		return OnceOnly
	case p.Fail:
		return FailsOnly
	}
	return ""
}

// RunsAgain is OnDeath's answer for a job that does not fail.
const RunsAgain = "runs again"

// OnDeath says what happens to a job if its worker process dies of it now: RunsAgain, "fails: death 3 of 3", or ""
// if the process has registered no policy.
func (p ProcInfo) OnDeath(job Reserved) string {
	if p.Fields[infoOnDeath] == "" {
		return ""
	}
	policy := policyFrom(p.Fields, Policy{MaxDeaths: math.MaxInt / hopeless})
	why := Fatal(job, policy.Final(job), policy.MaxDeaths, true)
	switch {
	case Listed(policy.Resumes, job):
		return RunsAgain
	case slices.Contains(policy.Fails, job.Token):
		why = "it was killed"
	case why == "":
		return RunsAgain
	}
	return "fails: " + why
}

// hopeless times max_deaths is how often a job may die of any cause: a job that takes its whole machine along
// must not do so for ever. docs/configuration.md promises this limit.
const hopeless = 4

// Fatal returns why a job does not run again after a death, or "". final is a reason that always applies;
// blamed: the job may have caused the death. maxDeaths is at least 1.
func Fatal(job Reserved, final string, maxDeaths int, blamed bool) string {
	most := maxDeaths * hopeless
	if maxDeaths == 1 {
		most = 1 // no job may run again by itself
	}
	switch {
	case final != "":
		return final
	case blamed && job.Blame+1 >= maxDeaths:
		return fmt.Sprintf("death %d of %d", job.Blame+1, maxDeaths)
	case job.Deaths+1 >= most && most == 1:
		return "death 1 of 1"
	case job.Deaths+1 >= most:
		// It need not be to blame.
		return fmt.Sprintf("death %d of any cause, and the most are %d (%d times max_deaths)", job.Deaths+1, most, hopeless)
	}
	return ""
}

// The reasons of jobs that never run again after a death.
const (
	OnceOnly  = "at_most_once: it may have run, so it does not run again by itself"
	FailsOnly = "on_worker_death is fail"
	ToldOnly  = "its failure hooks were told, so it does not run again by itself"
)
