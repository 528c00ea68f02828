package app

import (
	"time"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
)

// OpenStore opens the store of a configuration; client is its connections' name in Redis.
func OpenStore(c config.Config, client string) (*store.Store, error) {
	return store.Open(storeOptions(c, client))
}

// connections is how many a process may have to Redis. It has a few, and one more for each
// thread that asks for a class lock at the same moment. What it is for: after as many failed
// dials go-redis dials no more but once a second, and there is a lease to renew when Redis is back.
const connections = 100

func storeOptions(c config.Config, client string) store.Options {
	lease, beat := leaseAndBeat(c)
	return store.Options{
		URL: c.RedisURL, Namespace: c.Namespace, ClientName: client, PoolSize: connections,
		Lease: lease, BeatEvery: beat, LockTTL: c.JobLockDuration, LockKey: c.JobLockKey,
		CA: c.RedisCA, AllowEviction: c.AllowEviction, FailureLists: c.FailureLists(),
	}
}

// leaseAndBeat derives the timing of processes from that of job locks: one beat
// extends both. Nobody gains by a lease above the default, which only delays the
// recovery of jobs whose machine is gone.
func leaseAndBeat(c config.Config) (lease, beat time.Duration) {
	lease = min(store.DefaultLease, c.JobLockDuration)
	return lease, min(store.DefaultBeatEvery, c.HeartbeatFrequency, lease*2/7)
}

// UniqueOf tells which queues are unique; nil = none.
func UniqueOf(c config.Config) func(queue string) bool {
	if len(c.UniqueQueues) == 0 {
		return nil
	}
	return c.Unique
}
