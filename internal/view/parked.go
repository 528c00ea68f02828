package view

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// States of parked payloads.
const (
	ParkedKept  = "kept"  // a failure refers to it
	ParkedWaits = "waits" // it waits for its place
	ParkedGone  = "gone"  // the payload is missing
)

// ParkedJob is a parked payload.
type ParkedJob struct {
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Queue    string    `json:"queue"`
	Bytes    int64     `json:"bytes"`
	ParkedAt time.Time `json:"parked_at"`
	Reason   string    `json:"reason"`
	Key      string    `json:"key"`
}

// ParkedJobs returns at most limit parked payloads, the oldest first, and their total number.
func ParkedJobs(ctx context.Context, s *store.Store, limit int) (views []*ParkedJob, total int64, err error) {
	jobs, total, err := s.Parked(ctx, limit)
	if err != nil {
		return nil, 0, err
	}
	for _, j := range jobs {
		v := &ParkedJob{ID: j.ID, State: ParkedWaits, Queue: j.Queue, Bytes: max(j.Size, 0), ParkedAt: j.At, Reason: j.Reason, Key: j.Key}
		switch {
		case j.Size < 0:
			v.State = ParkedGone
		case j.Kind == store.ParkedPayload:
			v.State = ParkedKept
		}
		views = append(views, v)
	}
	return views, total, nil
}
