package locker

import "time"

// PollEvery sets the pause between two polls of a pool's waiters, which nobody must have
// yet; 0 is the usual one.
func PollEvery(pool any, pause time.Duration) {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	hubs.polls[pool] = pause
}
