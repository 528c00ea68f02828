package app

import (
	"time"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/store"
)

// RedisOf names the Redis and the namespace of a configuration, without the password.
func RedisOf(c config.Config) string { return c.Redacted().RedisURL + " (" + c.Namespace + ")" }

// OpenStore opens the store of a configuration. client is the name that Redis shows for its
// connections.
func OpenStore(c config.Config, client string) (*store.Store, error) {
	return store.Open(storeOptions(c, client))
}

// connections is how many connections to Redis a process may have. It uses a few, and one per
// thread that asks for a class lock at the same moment. The limit is this high because after as
// many failed dials go-redis dials only once a second, and a lease must be renewed as soon as
// Redis is back.
const connections = 100

func storeOptions(c config.Config, client string) store.Options {
	lease, beat := leaseAndBeat(c)
	return store.Options{
		URL: c.RedisURL, Namespace: c.Namespace, ClientName: client, PoolSize: connections,
		Lease: lease, BeatEvery: beat, LockTTL: c.JobLockDuration, LockPayload: c.JobLockKey == jobkey.Payload,
		Password: config.PasswordOf(c), CA: c.RedisCA, Cert: c.RedisCert, AllowEviction: c.AllowEviction, FailureLists: c.FailureLists(),
	}
}

// leaseAndBeat derives the lease of processes and the time between beats from the time of job
// locks: one beat extends both. The lease never exceeds the default, because a longer one only
// delays the recovery of jobs whose machine is gone.
func leaseAndBeat(c config.Config) (lease, beat time.Duration) {
	lease = min(store.DefaultLease, c.JobLockDuration)
	return lease, min(store.DefaultBeatEvery, c.HeartbeatFrequency, lease*2/7)
}

// UniqueOf returns a function that reports whether a queue is unique; nil if none is.
func UniqueOf(c config.Config) func(queue string) bool {
	if len(c.UniqueQueues) == 0 {
		return nil
	}
	return c.Unique
}
