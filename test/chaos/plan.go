package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/check"
)

// Queues in order of priority.
const (
	tickQueue   = "ticks" // the jobs of schedules
	highQueue   = "high"
	lockedQueue = "locked"
	sharedQueue = "shared" // foreign workers also take from it
	longQueue   = "long"   // long jobs
	lowQueue    = "low"
	uniqueQueue = "unique" // holds an equal payload once
)

// Limits: Limited jobs count under both, commands under one.
const (
	keyedLimit = "keyed"
	totalLimit = "total"
	// lengthyLimit is the one of commands that outlive a lease.
	lengthyLimit = "lengthy"
)

// limits are the limits of each daemon.
var limits = map[string]check.Limit{
	keyedLimit:   {Concurrency: 2, Rate: 3, Burst: 1},
	totalLimit:   {Concurrency: 2},
	lengthyLimit: {Concurrency: 1},
}

const limitConfig = `
limits:
  keyed: {classes: [Limited], key: "{{args.0}}", concurrency: 2, rate: 3/1s}
  total: {classes: [Limited, Command, Tree], concurrency: 2}
  lengthy: {classes: [Lengthy], concurrency: 1}
`

// allQueues are the queues of a daemon, in that order.
var allQueues = []string{tickQueue, highQueue, lockedQueue, uniqueQueue, sharedQueue, longQueue, lowQueue}

// job is the next job of a producer.
type job struct {
	id, queue, payload, expect string
	// raw: our client would not push it.
	raw bool
	// unquiet: it ends its process or keeps a thread for a second or two, which does not fit a
	// quiet time.
	unquiet bool
	// later is its delay.
	later time.Duration
	// again holds the pauses before pushing the same payload again.
	again []time.Duration
	// fails is how many of its runs fail; retry: its class has a retry.
	fails int
	retry bool
}

// Most jobs with a retry fail once to three times, some each time.
const retryAttempts = 4

var retryWaits = []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond}

// plan generates the jobs of one producer, determined by the seed.
type plan struct {
	rand     *rand.Rand
	producer int
	sequence int
	// runners: there are jobs for a runner.
	runners bool
	// slowEvery is how often a command that outlives a lease comes; 0 = never.
	slowEvery int
}

func newPlan(seed uint64, producer, slowEvery int) *plan {
	return &plan{rand: rand.New(rand.NewPCG(seed, uint64(1000+producer))), producer: producer, slowEvery: slowEvery}
}

// next generates a job: 35 % share 34 locks, a third of them in a unique queue, 7 % are
// commands, 6 % have limits by key, and some misbehave.
func (p *plan) next() job {
	p.sequence++
	j := job{
		// The number comes first in every payload, where it is always found.
		id:    fmt.Sprintf("chaos-%d", p.sequence*10+p.producer),
		queue: highQueue, expect: check.ExpectDone,
	}
	switch n := p.rand.IntN(1000); {
	case p.slowEvery > 0 && p.sequence%p.slowEvery == (p.slowEvery/8+p.producer*p.slowEvery/producers)%p.slowEvery:
		// All producers together push one when the previous one may be over.
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Slow", `["slow"]`, 0, "")
	case p.slowEvery > 0 && p.sequence%p.slowEvery == (p.slowEvery*5/8+p.producer*p.slowEvery/producers)%p.slowEvery:
		j.payload = p.payload(j.id, "Lengthy", "[]", 0, "")
	case n < 100:
		j.queue = uniqueQueue
		j.payload = p.payload(j.id, "Once", fmt.Sprintf(`["u%d"]`, p.skewed(10)), p.millis(5, 120), "")
		j.again = p.times(3)
	case n < 250: // some keys are wanted more than others
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Locked", fmt.Sprintf(`["k%d"]`, p.skewed(10)), p.millis(5, 120), "")
	case n < 300:
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Named", fmt.Sprintf(`["n%d"]`, p.skewed(10)), p.millis(5, 120), "")
	case n < 330:
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Command", fmt.Sprintf(`["c%d"]`, p.rand.IntN(4)), 0, "")
	case n < 350:
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Tree", fmt.Sprintf(`["c%d"]`, p.rand.IntN(4)), 0, "")
	case n < 370:
		j.payload, j.expect = p.payload(j.id, "Panic", "[]", 0, ""), check.ExpectPanic
	case n < 380:
		j.payload, j.expect = p.payload(j.id, "Fail", "[]", 0, ""), check.ExpectError
	case n < 385:
		j.payload, j.expect = p.payload(j.id, "Nobody", "[]", 0, ""), check.ExpectUnknown
	case n < 395:
		j.payload, j.expect, j.raw = p.malformed(j.id), check.ExpectInvalid, true
	case n < 405:
		j.payload = p.payload(j.id, "Again", "[]", 0, "")
	case n < 410:
		j.payload, j.unquiet = p.payload(j.id, "Stubborn", "[]", p.millis(500, 2500), ""), true
	case n < 411 && p.rand.IntN(4) == 0:
		j.payload, j.expect, j.unquiet = p.payload(j.id, "Poison", "[]", p.millis(0, 50), p.death()), check.ExpectDeath, true
	case n < 412:
		j.payload, j.unquiet = p.payload(j.id, "Die", "[]", p.millis(0, 50), p.death()), true
	case n < 600:
		j.queue = sharedQueue
		j.payload = p.payload(j.id, "Work", "["+strings.TrimPrefix(j.id, "chaos-")+"]", p.millis(0, 20), "")
	case n < 640:
		j.payload, j.unquiet = p.payload(j.id, "Work", "[]", p.millis(800, 2500), ""), true
	case n < 660:
		j.payload = p.payload(j.id, "Work", "[]", p.millis(0, 60), "")
		j.again = append(p.times(2), 0)
	case n < 700:
		j.payload = p.payload(j.id, "Work", "[]", p.millis(0, 60), "")
		j.later = time.Duration(p.millis(1, 3000)) * time.Millisecond
	case n < 740:
		j.retry, j.fails = true, 1+p.rand.IntN(3)
		if p.rand.IntN(10) == 0 {
			j.fails, j.expect = retryAttempts, check.ExpectError
		}
		// Equal arguments would share their count.
		j.payload = strings.Replace(p.payload(j.id, "Retry", fmt.Sprintf("[%q]", j.id), p.millis(0, 30), ""),
			`"how":""`, fmt.Sprintf(`"fails":%d`, j.fails), 1)
	case n < 760: // it waits where Ruby's schedulers look
		j.payload = fmt.Sprintf(`{"class":"Later","args":[%q]}`, j.id)
		j.later = time.Duration(p.millis(5000, 9000)) * time.Millisecond
	case n < 785: // now and then its program cannot be opened
		j.payload = p.payload(j.id, "Tool", "[]", 0, "")
	case n < 800: // for moments more than the limit of its key allows
		j.queue = []string{highQueue, lowQueue}[p.rand.IntN(2)]
		j.payload = p.payload(j.id, "Limited", fmt.Sprintf(`["l%d",%q]`, p.skewed(3), j.id), p.millis(20, 400), "")
		j.again = p.times(6)
	case p.runners && n < 850:
		p.runner(&j, n-800)
	default:
		j.payload = p.payload(j.id, "Work", "[]", p.millis(0, 60), "")
	}
	return j
}

// runner makes j a job for a runner; n is below 50. Most take long enough to be hit.
func (p *plan) runner(j *job, n int) {
	switch {
	case n == 0 && p.rand.IntN(4) == 0:
		j.payload, j.expect, j.unquiet = p.payload(j.id, "RunnerPoison", "[]", p.millis(0, 50), p.exit()), check.ExpectDeath, true
	case n <= 2:
		j.payload, j.unquiet = p.payload(j.id, "RunnerDie", "[]", p.millis(0, 50), p.exit()), true
	case n <= 4:
		j.payload, j.expect = p.payload(j.id, "RunnerFail", "[]", 0, ""), check.ExpectArgument
	case n <= 20:
		j.queue = lockedQueue
		j.payload = p.payload(j.id, "Runner", fmt.Sprintf(`["r%d"]`, p.skewed(6)), p.millis(5, 150), "")
	default:
		j.payload = p.payload(j.id, "Runner", "[]", p.millis(0, 200), "")
	}
}

func (p *plan) exit() string { return []string{"kill", "exit"}[p.rand.IntN(2)] }

// payload formats a job with padding: mostly little, sometimes up to 1 MB.
func (p *plan) payload(id, class, args string, ms int, how string) string {
	size := 10 + p.rand.IntN(300)
	if p.rand.IntN(25) == 0 {
		size = int(math.Exp(p.rand.Float64()*math.Log(1000)) * 1000)
	}
	return fmt.Sprintf(`{"class":%q,"id":%q,"args":%s,"ms":%d,"how":%q,"pad":%q}`, class, id, args, ms, how, strings.Repeat("x", size))
}

func (p *plan) malformed(id string) string {
	forms := []string{
		`{"class":"Work","id":%q,"args":[]`, `[%q]`, `%q`, `{"class":7,"id":%q,"args":[]}`,
		`{"id":%q,"args":[]}`, `{"class":"Work","id":%q,"args":{}}`, "\x00\xff%q",
	}
	return fmt.Sprintf(forms[p.rand.IntN(len(forms))], id)
}

func (p *plan) death() string {
	return []string{"kill", "exit", "panic", "memory"}[p.rand.IntN(4)]
}

func (p *plan) millis(least, most int) int { return least + p.rand.IntN(most-least) }

// times returns up to n short pauses.
func (p *plan) times(n int) (all []time.Duration) {
	for range p.rand.IntN(n + 1) {
		all = append(all, time.Duration(p.millis(0, 60))*time.Millisecond)
	}
	return all
}

// skewed returns a random number below n, small ones more often.
func (p *plan) skewed(n int) int { return min(p.rand.IntN(n), p.rand.IntN(n)) }
