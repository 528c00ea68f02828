package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxArgument = 9999

// HandlerLock is the class lock of a command handler.
type HandlerLock struct {
	// Timeout is how long a job may hold the lock; 0 = no limit.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Args are the arguments that distinguish locks; none = all. It excludes Key and ClassWide.
	Args []int `json:"args,omitempty"`
	// Key is the whole key, without the namespace.
	Key string `json:"key,omitempty"`
	// ClassWide: all jobs of the class share one lock.
	ClassWide bool `json:"class_wide,omitempty"`
	// Loner refuses to enqueue a job while an equal one waits or runs.
	Loner bool `json:"loner,omitempty"`
	// OnLocked is what happens to a job whose lock is held: "drop", "requeue" or "fail".
	OnLocked string `json:"on_locked"`
	// Redis is the URL of another server; empty = the daemon's own. It may hold a password.
	Redis string `json:"redis,omitempty"`
	// Store is "redis", or "postgres" for locks in DatabaseURL.
	Store string `json:"store,omitempty"`
}

// lockSynonyms has the names of resque-lock-timeout and locker, too.
var lockSynonyms = map[string]string{
	"lock_timeout": "timeout", "lock_for": "timeout", "duration": "timeout", "ttl": "timeout", "expires": "timeout",
	"identifier": "args", "arguments": "args", "redis_lock_key": "key", "lock_key": "key", "lock_redis": "redis",
	"lock_failed": "on_locked", "blocking": "on_locked", "wait": "on_locked", "requeue": "on_locked",
	"unique": "loner", "loner_lock": "loner", "per_class": "class_wide", "model": "store", "database": "store", "postgres": "store",
}

// onLocked are the values of on_locked, the default first.
var onLocked = []string{"drop", "requeue", "fail"}

// lockStores are the values of store, the default first.
var lockStores = []string{"redis", "postgres"}

// fields are in the order of the documentation.
func (l *HandlerLock) fields() rules {
	return rules{
		{"timeout", duration(&l.Timeout, nil).read},
		{"args", into(&l.Args, (*file).readIndexes)},
		{"class_wide", boolean(&l.ClassWide).read},
		{"key", exact(&l.Key, checkLockKey)},
		{"loner", boolean(&l.Loner).read},
		{"on_locked", exact(&l.OnLocked, among(onLocked))},
		{"redis", into(&l.Redis, (*file).readLockRedis)},
		{"store", exact(&l.Store, among(lockStores))},
	}
}

func (f *file) readLock(at string, from field) *HandlerLock {
	lock := &HandlerLock{OnLocked: onLocked[0]}
	given, ok := f.readMap(at, from, "must be a map, if only {} for a lock with nothing special", lock.fields(), lockSynonyms)
	if !ok {
		return lock
	}
	var keys []string
	for _, one := range given {
		if one.name == "args" || one.name == "key" || one.name == "class_wide" && lock.ClassWide {
			keys = append(keys, one.name)
		}
	}
	if len(keys) > 1 {
		f.refuse(at, "", from.line, "has "+strings.Join(keys, " and ")+", which both say what the key is; keep one of them")
	}
	if lock.Store == "postgres" {
		switch {
		case lock.Redis != "":
			f.refuse(at, "", from.line, "has redis and store: postgres, which both say where locks are kept; keep one of them")
		case lock.Loner:
			f.refuse(at, "", from.line, "has loner and store: postgres; whether a loner may be enqueued is for Redis to say, so its lock has to be there, too")
		}
	}
	return lock
}

func checkLockKey(key string) error {
	switch {
	case key == "":
		return errors.New("must not be empty; leave it out for a key made of class and arguments")
	case strings.Contains(key, "{{"):
		return errors.New("is one key for all jobs, not a template; args: [0] makes a key for each first argument")
	}
	return printable(key)
}

func (f *file) readIndexes(name string, from field) (indexes []int) {
	f.readList(name, from, "must be a list of the arguments that count, from 0: [0]", "is empty; write class_wide: true for one lock for all jobs of the class", func(text string) error {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0 || n > maxArgument:
			err = fmt.Errorf("must be the number of an argument, 0 to %d", maxArgument)
		case slices.Contains(indexes, n):
			err = errors.New("is there twice; keep one of them")
		}
		indexes = append(indexes, n)
		return err
	})
	return indexes
}

// readLockRedis reads a URL. It may hold a password, so no message repeats it.
func (f *file) readLockRedis(name string, from field) string {
	value, err := scalar(from.value)
	if err == nil {
		err = checkRedisURL(value)
	}
	if err != nil {
		f.refuse(name, "", from.line, err.Error())
		return ""
	}
	return value
}
