// Package job is shared by the workers of all peers: what a job does, and how it reports to the
// harness. resqued's daemon uses it in a separate program.
package job

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Class is the class of every job.
const Class = "Noop"

// Env is the environment variable that holds the Spec for a worker process of resqued.
const Env = "BENCH_JOB"

// Spec holds what a worker process needs to know about its jobs.
type Spec struct {
	Shared  string        // the file of the shared memory
	Wait    time.Duration // how long a job waits for a kernel timer
	Sleep   time.Duration // how long a job sleeps
	Latency bool          // the first argument is the time at which the job was sent
	Command bool          // jobs are external programs
	// Chain is the queue to which each job pushes the next one, with Text; "" means none.
	Chain, Text string
	Redis       string // the address of the server
	Namespace   string
	Profile     string // prefix of the files of CPU profiles, "" = none
}

// FromEnv returns the Spec that the harness gave this process.
func FromEnv() (Spec, error) {
	var sp Spec
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &sp); err != nil {
		return Spec{}, fmt.Errorf("%s: %w; the harness starts this program", Env, err)
	}
	return sp, nil
}

// Args are the two arguments of a job.
type Args struct {
	N    int64  `json:"n"`
	Text string `json:"text"`
}

// Handler runs the jobs of every peer.
type Handler struct {
	Spec   Spec
	Shared *Shared
	// Push pushes the next job of a chain.
	Push func(ctx context.Context, queue string, n int64, text string) error
}

// Perform runs a job with its two arguments.
func (h *Handler) Perform(ctx context.Context, n int64, _ string) error {
	h.Shared.Begin()
	if h.Spec.Latency {
		h.Shared.Late(n)
	}
	if h.Spec.Wait > 0 {
		if err := Wait(h.Spec.Wait); err != nil {
			return err
		}
	}
	if h.Spec.Sleep > 0 {
		time.Sleep(h.Spec.Sleep)
	}
	if h.Spec.Chain != "" {
		if err := h.Push(ctx, h.Spec.Chain, n+1, h.Spec.Text); err != nil {
			return err
		}
	}
	h.Shared.End()
	return nil
}
