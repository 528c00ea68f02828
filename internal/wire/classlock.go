package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
)

var errEmptyKey = errors.New("its Key function returned an empty key")

// ClassLockKey returns the key of the class lock of a job, without the namespace, in the form of
// resque-lock-timeout: lock:<class>:<identifier>. The class must have a Lock. style is how hashes
// in the arguments are printed.
func ClassLockKey(class *resqued.Class, name string, args resqued.Args, style RubyStyle) (string, error) {
	lock := class.Lock
	name = ClassOf(class, name)
	key, err := "", error(nil)
	switch {
	case lock.Key != nil:
		key, err = lock.Key(args)
		if err == nil && key == "" {
			err = errEmptyKey
		}
	case lock.ClassWide:
		key = "lock:" + name
	case lock.Identifier != nil:
		key, err = lock.Identifier(args)
		key = "lock:" + name + ":" + key
	default:
		key, err = RubyJoin(args, style)
		key = "lock:" + name + ":" + key
	}
	if err != nil {
		return "", fmt.Errorf("key of the lock of %s: %w", name, err)
	}
	return key, nil
}

// ClassLockTimeout returns how long a job with these arguments may hold the lock; 0 = without
// limit.
func ClassLockTimeout(lock *resqued.ClassLock, args resqued.Args) (time.Duration, error) {
	if lock.TimeoutFunc == nil {
		return lock.Timeout, nil
	}
	d, err := lock.TimeoutFunc(args)
	if err != nil {
		return 0, fmt.Errorf("timeout of the lock: %w", err)
	}
	return max(d, 0), nil
}
