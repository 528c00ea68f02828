// Package resquedtest tests job handlers without a daemon and without a Redis server.
//
// New returns queues in a Redis inside the test's process. Their Client enqueues jobs, Drain
// performs them and returns how each ended, and Advance moves the time:
//
//	func TestMail(t *testing.T) {
//		q := resquedtest.New(t, handlers())
//		_, err := q.Client().Enqueue(t.Context(), "Mail", Mail{User: 42}, client.In(time.Hour))
//		...
//		q.Advance(time.Hour)
//		for _, job := range q.Drain(t) {
//			if job.Err != nil {
//				t.Error(job)
//			}
//		}
//	}
//
// Everything between a call of the Client and a handler is the code of production: the scripts
// in Redis and the worker process. So class locks, loners, job locks, unique queues, retries,
// delayed jobs, middleware, hooks, commands and long jobs behave as they do there. No test
// waits for time to pass, and everything ends with the test.
//
// A test of code that enqueues jobs may look at the waiting jobs instead of performing them:
// see Require, Jobs and Delayed. A test of one handler function needs no queues: see Job.
//
// # Differences from production
//
// The Redis is a miniredis, which does what the scripts need, but not everything that Redis
// does.
//
// Jobs run one at a time, in the test's process. If a handler calls Drain, other jobs run while
// it waits, as they would in other threads. That shows which jobs its locks keep out.
//
// A goroutine cannot be killed, only its process. A daemon kills the process of a job that
// ignores the end of its context; here Drain fails the test, and the job's goroutine continues.
// No worker process ever dies, so on_worker_death and max_deaths cannot be tested.
//
// Advance moves the time of the queues, not the machine's. Handlers get the machine's from
// package time, and by it pass the Timeout of a class, the slices of long jobs and the times in
// failure records.
//
// Nothing is enqueued automatically: neither by the schedules of the configuration, nor by
// resqued.Class.Every, nor by the recurrences of long jobs. The AfterFork hooks run once,
// before the first job; BeforeFork, BeforePause and AfterPause do not run. Class locks that are
// kept in PostgreSQL or in another Redis are kept in the Redis of the test, and
// Job.LockSequence is 0. Commands of the configuration's handlers section are not known.
// Commands registered by Handlers.Command run, with the environment of the test.
//
// Like the daemon, the package needs Linux.
package resquedtest
