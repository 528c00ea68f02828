// Package longjob runs jobs of hours or days in short slices. The function of such a job class
// does its work in units. When a slice is over (after 15 seconds by default), or when its
// worker process is to exit, no further unit begins: the state of the run is saved, and in the
// same step the next slice is enqueued. A deploy therefore neither waits for a long job nor
// interrupts one, and short jobs get their turn in between.
//
//	h := resqued.New()
//	longjob.Register(h, "SiteMigrate", migrate, longjob.Options{Queue: "medium", RequeueQueue: "low"})
//	daemon.Main(h)
//
//	func migrate(ctx context.Context, r *longjob.Runner, site int64) error {
//		if err := r.WorkOnce(ctx, "setup", setup); err != nil {
//			return err
//		}
//		return longjob.WorkEach(ctx, r, "copy", rows, copyRow)
//	}
//
// The function runs from its beginning in each slice and skips the steps that are done. A unit
// that was interrupted is repeated; a completed one is not.
//
// Command registers an external program instead of a function. A Client enqueues runs. Recur
// enqueues them at intervals. docs/longjob.md is the guide.
package longjob
