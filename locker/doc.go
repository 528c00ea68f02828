// Package locker is a lock that spans servers, kept in PostgreSQL: one of them does
// the work, and when it dies another one takes over.
//
//	ran, err := locker.Run(ctx, pool, "feeds", locker.Options{Blocking: true},
//		func(ctx context.Context, sequence int64) error { return checkFeeds(ctx, sequence) })
//
// A lock is a row of a table (Migrate makes it; that of the Ruby gem locker is the
// same, and both languages exclude each other). Whoever has it holds it for LockFor
// and renews it every RenewEvery. All times in the table are the database's.
//
// A holder that cannot renew is told before anybody else can have the lock: the
// context of its block ends, with ErrLockStolen as its cause. It counts from when the
// last successful statement was sent, on a clock that goes on while the machine is
// suspended. Go cannot stop a function, so a block has to heed its context. Against a
// block that does not, or that was stopped between a look at its context and a write,
// there is the sequence: it grows with every acquisition, and whatever the block
// writes to can refuse a lower one than it has seen.
//
// Statements run on connections of the given pool, each for a few milliseconds. Leave
// room in it: a lock whose renewal waits for a connection until the lease is over is
// lost. Waiting blocks share one more connection, which listens for releases.
package locker
