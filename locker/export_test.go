//go:build linux

package locker

import "time"

// PollEvery sets the pause between two polls of a pool's waiters, before the first waiter; 0
// restores the default.
func PollEvery(pool any, pause time.Duration) {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	hubs.polls[pool] = pause
}
