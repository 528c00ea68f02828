package store_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

var (
	classOwner = regexp.MustCompile(`^\w+:resqued:(.*)#([^#]*)$`)
	markedJob  = regexp.MustCompile(`^\w+:queue:(\d+):`)
)

func anyClassKey(t *rapid.T) string {
	return fmt.Sprint("lock:C:", rapid.IntRange(0, 2).Draw(t, "identifier"))
}

func anyTimeout(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "timeout")
}

// standing reports whether a class lock is in the way.
func standing(s storetest.Snapshot, key string) bool {
	value, ok := s.Value(storetest.Space + key)
	if owner := classOwner.FindStringSubmatch(value); owner != nil {
		_, alive := s.Hash("resqued:inflight:" + owner[1])[owner[2]]
		return alive
	}
	return ok && !expired(value)
}

func expired(value string) bool {
	epoch, err := strconv.ParseInt(value, 10, 64)
	return err == nil && epoch < time.Now().Unix()
}

// acquire takes a class lock for a job, as it does before it runs.
func (m *model) acquire(t *rapid.T) {
	p := m.anyProcess(t)
	if p.fenced {
		_, err := m.Store.AcquireLock(m.Ctx, store.AcquireRequest{HeldLock: store.HeldLock{Proc: p.name, Token: "late", Key: "lock:C:0"}})
		if !errors.Is(err, store.ErrFenced) {
			t.Fatalf("I4: a fenced process was served: %v", err)
		}
		m.unchanged(t, "a fenced process")
	} else if len(p.jobs) > 0 {
		token := rapid.SampledFrom(p.tokens()).Draw(t, "job")
		key := anyClassKey(t)
		if taken := p.jobs[token].classKey; taken != "" {
			key = strings.TrimPrefix(taken, storetest.Space)
		}
		m.acquireFor(t, p, token, key, anyTimeout(t), rapid.Bool().Draw(t, "loner"))
	}
}

func (m *model) acquireFor(t *rapid.T, p *process, token, key string, timeout time.Duration, loner bool) {
	job := p.jobs[token]
	lock := store.HeldLock{Proc: p.name, Token: token, Key: key, Timeout: timeout}
	reply, err := m.Store.AcquireLock(m.Ctx, store.AcquireRequest{HeldLock: lock, Loner: loner})
	storetest.Must(t, err)
	value, _ := m.now.Value(storetest.Space + key)
	own := strings.HasSuffix(value, ":"+storetest.Owner(p.name, token))
	switch free := own || !standing(m.now, key); {
	case reply.Late != job.lost || reply.Got != (free && !job.lost):
		t.Fatalf("I2: %s is held by %q; the record of the job is lost: %v; the answer is %+v", key, value, job.lost, reply)
	case job.lost:
		m.unchanged(t, "a job without a record")
		return
	case reply.Got:
		if value != "" && !own {
			m.See("class lock taken over")
		}
		delete(m.orphans, storetest.Space+key)
		delete(m.foreign, storetest.Space+key)
		job.classKey, job.classLoose = storetest.Space+key, false
		m.value(t, job, timeout)
	}
	marker, marked := m.now.Value(storetest.Space + store.MarkerKey(key))
	_, stays := m.Look(t).Value(storetest.Space + store.MarkerKey(key))
	others := markedJob.MatchString(marker) && !strings.HasSuffix(marker, fmt.Sprintf(":queue:%d:%s%s", len(job.Queue), job.Queue, job.Payload))
	if marked && stays != (!loner || others) {
		t.Fatalf("I10: the marker of %s is %q; it stays: %v", key, marker, stays)
	}
}

// value checks the new value of a class lock.
func (m *model) value(t *rapid.T, job *running, timeout time.Duration) {
	value, err := m.Redis.Get(m.Ctx, job.classKey).Result()
	storetest.Must(t, err)
	until, _, _ := strings.Cut(value, ":")
	epoch, _ := strconv.ParseInt(until, 10, 64)
	if ends := epoch - int64(timeout.Seconds()); timeout == 0 && until != "true" || timeout > 0 && (ends < m.began || ends > time.Now().Unix()+2) {
		t.Fatalf("class lock with a timeout of %s: %q", timeout, value)
	}
	job.classValue = value
}

// refresh begins the time of a class lock anew.
func (m *model) refresh(t *rapid.T) {
	p := m.anyProcess(t)
	tokens := slices.DeleteFunc(p.tokens(), func(token string) bool { return p.jobs[token].classKey == "" })
	if len(tokens) == 0 {
		return
	}
	token, timeout := rapid.SampledFrom(tokens).Draw(t, "job"), anyTimeout(t)
	job := p.jobs[token]
	lock := store.HeldLock{Proc: p.name, Token: token, Key: strings.TrimPrefix(job.classKey, storetest.Space), Timeout: timeout}
	reply, err := m.Store.RefreshLock(m.Ctx, lock)
	kept := reply.Got
	if p.fenced != errors.Is(err, store.ErrFenced) || !p.fenced && kept == (job.classLoose || job.lost) {
		t.Fatalf("I2: %s of %s was refreshed: %v, %v", job.classKey, storetest.Owner(p.name, token), kept, err)
	}
	if kept {
		m.value(t, job, timeout)
	} else {
		m.unchanged(t, "who has lost a class lock")
	}
}

// extend restarts the time of a class lock for any holder.
func (m *model) extend(t *rapid.T) {
	key, timeout := anyClassKey(t), 2*anyTimeout(t)
	held, err := m.Store.ExtendLock(m.Ctx, key, timeout, false)
	storetest.Must(t, err)
	if held != standing(m.now, key) {
		t.Fatalf("I2: %s was extended: %v", key, held)
	}
	for _, p := range m.procs {
		for _, job := range p.jobs {
			if job.classKey == storetest.Space+key && !job.classLoose && !job.lost && timeout > 0 && job.classValue[0] != 't' {
				m.value(t, job, timeout)
				return
			}
		}
	}
	m.unchanged(t, "who extends what has no time")
}

// loner enqueues a job unless one with the same class lock runs or waits.
func (m *model) loner(t *rapid.T) {
	queue := m.anyQueue(t)
	m.enqueueLoner(t, queue, m.payload(t, queue), anyClassKey(t), anyTimeout(t))
}

func (m *model) enqueueLoner(t *rapid.T, queue store.Queue, payload, key string, timeout time.Duration) {
	reply, err := m.Store.EnqueueLoner(m.Ctx, store.LonerRequest{
		Key: key, Timeout: timeout, Queue: queue.Name, Payload: []byte(payload), Unique: queue.Unique,
	})
	storetest.Must(t, err)
	want := m.lonerStatus(key)
	if want == store.LonerPushed && queue.Unique && slices.Contains(m.now.List("queue:"+queue.Name), payload) {
		want = store.LonerDuplicate
	}
	if reply.Status != want {
		t.Fatalf("I10: a loner of %s: %s, should be %s; marker %q", key, reply.Status, want, m.now[store.MarkerKey(key)].Values)
	}
	if want != store.LonerPushed {
		m.See("loner refused")
		m.unchanged(t, "a loner that was refused")
		return
	}
	it := storetest.Item{Queue: queue.Name, Payload: payload}
	m.count[it]++
	if queue.Unique {
		m.waits(it, store.Reserved{}, false)
	}
}

func (m *model) lonerStatus(key string) string {
	if standing(m.now, key) {
		return store.LonerLocked
	}
	marker, marked := m.now.Value(storetest.Space + store.MarkerKey(key))
	if !marked {
		return store.LonerPushed
	}
	if size := markedJob.FindStringSubmatch(marker); size != nil {
		n, _ := strconv.Atoi(size[1])
		rest := marker[len(markedJob.FindString(marker)):]
		if !somewhere(m.now, storetest.Item{Queue: rest[:n], Payload: rest[n:]}) {
			return store.LonerPushed
		}
	}
	return store.LonerDuplicate
}

// somewhere reports whether a payload waits or is in flight.
func somewhere(s storetest.Snapshot, it storetest.Item) bool {
	if slices.Contains(s.Waiting(it.Queue), it.Payload) || s.Apart()[it] > 0 {
		return true
	}
	for key := range s {
		if !strings.HasPrefix(key, "resqued:inflight:") {
			continue
		}
		for token, record := range s.Hash(key) {
			if job, err := store.ParseRecord(token, record); err == nil && (storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}) == it {
				return true
			}
		}
	}
	return false
}
