// Package longjob runs jobs of hours or days in short slices. A job class is a function
// that does its work in units; when a slice is over (15 seconds by default), or when its
// worker process wants to leave, the next unit does not begin: what the run remembers is
// saved, and the next slice is enqueued in the same step. So a deploy never waits for a
// long job and never interrupts one, and short jobs get their turn in between.
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
// The function runs again from its beginning in each slice, and finds its place by the
// steps that are done. A unit that was interrupted is done again; one that is done is not.
// Command registers an external program in the place of a function.
//
// docs/longjob.md tells all of it.
package longjob
