// Package job is shared by the workers of all peers: what a job does, and how it reports to the
// harness. resqued's daemon uses it in a separate program.
package job

import (
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
	Profile string        // prefix of the files of CPU profiles, "" = none
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
}

// Perform runs a job with its first argument.
func (h *Handler) Perform(n int64) error {
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
	h.Shared.End()
	return nil
}
