// Package locker is a lock across servers, kept in PostgreSQL: one server does the work, and
// when it dies another one takes over.
//
//	ran, err := locker.Run(ctx, pool, "feeds", locker.Options{Blocking: true},
//		func(ctx context.Context, sequence int64) error { return checkFeeds(ctx, sequence) })
//
// A lock is a row of a table, which Migrate creates. The Ruby gem locker uses the same table,
// and both languages exclude each other. The holder has the lock for LockFor and renews it
// every RenewEvery. All times in the table are by the database's clock.
//
// A holder that cannot renew its lock notices before another one can get the lock: the context
// of its block ends with ErrLockStolen as its cause. It counts from the moment at which the
// last successful statement was sent, on a clock that continues while the machine is suspended.
// Go cannot stop a function, so a block must watch its context. The sequence protects against a
// block that does not, or that was stopped between checking its context and writing: it grows
// with every acquisition, and whatever the block writes to can refuse a smaller sequence than
// it has seen.
//
// Statements run on connections of the given pool, each for a few milliseconds. Leave room in
// the pool: a lock is lost if its renewal waits for a connection until the lease is over. All
// waiting blocks share one more connection, which listens for releases.
package locker
