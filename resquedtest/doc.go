// Package resquedtest tests job handlers without a daemon and without a Redis server.
//
// New returns queues in a Redis that lives in the test's process. Their Client enqueues jobs,
// Drain works them and tells how each has ended, Advance moves the time:
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
// All that happens between a call of the Client and a handler is what happens in production:
// the scripts in Redis and the worker process are the same code. So class locks, loners, job
// locks, unique queues, retries, delayed jobs, middleware, hooks, commands and long jobs
// behave as they do there. No test waits for time to pass, and all ends with the test.
//
// A test of the code that enqueues jobs may look at what waits instead of working it: see
// Require, Jobs and Delayed. A test of one handler function needs no queues: see Job.
//
// # What is not as in production
//
// The Redis is a miniredis, which does what the scripts need, and not all that a Redis does.
//
// Jobs run one at a time, in the test's process. A handler that calls Drain has other jobs
// run while it waits, as they would in other threads; that shows what its locks keep away.
//
// A goroutine cannot be killed, only its process. A daemon does that to a job which ignores
// the end of its context; here Drain fails the test, and the job's goroutine goes on. No
// worker process ever dies, so nothing of on_worker_death and max_deaths can be seen.
//
// Advance moves the time of the queues and not that of the machine. Handlers are told the
// latter by package time, and by it pass the Timeout of a class, the slices of long jobs and
// the times in failure records.
//
// Nothing is enqueued by itself: not by the schedules of the configuration nor by
// resqued.Class.Every, and no run by the recurrences of long jobs. The AfterFork hooks run once,
// before the first job; BeforeFork, BeforePause and AfterPause do not run. Class locks that are
// kept in PostgreSQL or in another Redis are kept in the Redis of the test, and Job.LockSequence
// is 0. Commands of the configuration's handlers section are not known; those of
// Handlers.Command run, with the environment of the test.
//
// As the daemon, the package needs Linux.
package resquedtest
