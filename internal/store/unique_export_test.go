package store

import "context"

// Step is one step of a repair.
type Step struct {
	Touched int64
	Done    bool
}

// Step goes one step on with the healing of a unique queue.
func (s *Store) Step(ctx context.Context, queue string) (UniqueReport, Step, error) {
	report := UniqueReport{Queue: queue}
	step, err := s.repair(ctx, queue, "g", &report)
	return report, Step{Touched: step.touched, Done: step.state == repairDone}, err
}
