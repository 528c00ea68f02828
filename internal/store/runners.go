package store

// InfoRunners is the field of a process's entry with its runners, a JSON array of RunnerInfo; FieldTemplates is
// the field of a master's entry with its templates.
const (
	InfoRunners    = "runners"
	FieldTemplates = "templates"
)

// The states of a runner.
const (
	RunnerBooting = "booting"
	RunnerIdle    = "idle"
	RunnerBusy    = "busy"
	RunnerLeaving = "leaving"
	RunnerFailed  = "failed" // no runner can be started
)

// RunnerInfo is a process that performs jobs for a worker process.
type RunnerInfo struct {
	// Runner is the runner's name in the configuration.
	Runner string `json:"runner"`
	PID    int    `json:"pid,omitempty"`
	State  string `json:"state"`
	// Busy is how many jobs it performs, of Slots; Jobs is how many it has received.
	Busy  int `json:"busy"`
	Slots int `json:"slots,omitempty"`
	Jobs  int `json:"jobs"`
	// Tokens name the runs of the jobs in hand.
	Tokens []string `json:"tokens,omitempty"`
	// RSS is its memory in bytes, including what it shares with its template.
	RSS    int64 `json:"rss"`
	Forked bool  `json:"forked,omitempty"`
	// Why is why no runner can be started.
	Why string `json:"why,omitempty"`
}

// TemplateInfo is a process that forks runners.
type TemplateInfo struct {
	Runner string `json:"runner"`
	PID    int    `json:"pid,omitempty"`
	// State is booting, ready or failed.
	State string `json:"state"`
	// Why is why it has failed; Restarts is how often it was restarted.
	Why      string `json:"why,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
}
