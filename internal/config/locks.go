package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
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

var lockFields = []string{"timeout", "args", "class_wide", "key", "loner", "on_locked", "redis", "store"}

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

func (f *file) readLock(at string, from field) *HandlerLock {
	lock := &HandlerLock{OnLocked: onLocked[0]}
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, "must be a map, if only {} for a lock with nothing special")
		return lock
	}
	var keys []string
	for _, field := range f.fields(from.value, at+".") {
		name := at + "." + field.name
		switch field.name {
		case "timeout":
			f.readDuration(name, field, &lock.Timeout, nil)
		case "args":
			keys = append(keys, field.name)
			lock.Args = f.readIndexes(name, field)
		case "class_wide":
			f.readBool(name, field, &lock.ClassWide)
			if lock.ClassWide {
				keys = append(keys, field.name)
			}
		case "key":
			keys = append(keys, field.name)
			f.readText(name, field, &lock.Key, checkLockKey)
		case "loner":
			f.readBool(name, field, &lock.Loner)
		case "on_locked":
			f.readText(name, field, &lock.OnLocked, func(value string) error {
				return oneOfThese(onLocked, value)
			})
		case "store":
			f.readText(name, field, &lock.Store, func(value string) error { return oneOfThese(lockStores, value) })
		case "redis":
			f.readLockRedis(name, field, lock)
		default:
			f.refuse(name, "", field.line, unknown(nearest(field.name, lockFields, lockSynonyms)))
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

func oneOfThese(words []string, value string) error {
	if !slices.Contains(words, value) {
		return errors.New("not known, one of " + strings.Join(words, ", "))
	}
	return nil
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

func (f *file) readIndexes(name string, from field) []int {
	if from.value.Kind != yaml.SequenceNode {
		f.refuse(name, "", from.line, "must be a list of the arguments that count, from 0: [0]")
		return nil
	}
	texts, lines, ok := f.list(name, from.value)
	if ok && len(texts) == 0 {
		f.refuse(name, "", from.line, "is empty; write class_wide: true for one lock for all jobs of the class")
		return nil
	}
	var indexes []int
	for i, text := range texts {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0 || n > maxArgument:
			f.refuse(name, text, lines[i], fmt.Sprintf("must be the number of an argument, 0 to %d", maxArgument))
		case slices.Contains(indexes, n):
			f.refuse(name, text, lines[i], "is there twice; keep one of them")
		}
		indexes = append(indexes, n)
	}
	return indexes
}

func (f *file) readBool(name string, from field, to *bool) {
	f.readText(name, from, new(string), func(value string) (err error) {
		*to, err = parseBool(strings.TrimSpace(value))
		return err
	})
}

// readLockRedis reads a URL. It may hold a password, so no message repeats it.
func (f *file) readLockRedis(name string, from field, lock *HandlerLock) {
	value, err := scalar(from.value)
	if err == nil {
		err = checkRedisURL(value)
	}
	if err != nil {
		f.refuse(name, "", from.line, err.Error())
		return
	}
	lock.Redis = value
}
