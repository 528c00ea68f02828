package signals

import "time"

// Again is how long after the first kill request a further one means SIGKILL. Earlier ones
// count as copies: a terminal, a wrapper script and systemd may each send their own.
const Again = time.Second

// Action is what a process does about a signal. The zero Action is Ignore.
type Action string

// The actions.
const (
	// Ignore: the signal changes nothing here.
	Ignore Action = ""
	// Enter: go to the next state.
	Enter Action = "enter"
	// KillJobs: kill the jobs in hand, stay alive, go to the next state.
	KillJobs Action = "kill jobs"
	// StartPaused and StartRunning: note the state to enter after the start.
	StartPaused  Action = "start paused"
	StartRunning Action = "start running"
	// Repeat: send the state to every worker process again. A signal of its own may have changed one.
	Repeat Action = "tell all again"
	// Reread: read the configuration again and roll the worker processes.
	Reread Action = "reload"
	// RereadLater: the same, as soon as the start has ended.
	RereadLater Action = "reload after the start"
	// Refuse: not possible in this state; log it.
	Refuse Action = "refused"
	// KillNow: SIGKILL what is left, at once.
	KillNow Action = "SIGKILL now"
)

// Step is one cell of a table: what to do, and the state afterwards.
type Step struct {
	Do   Action
	Next State
	// again: take the step only if the state has lasted for Again.
	again bool
}

// Table holds the step for each state and intent of one kind of process. Other pairs are ignored.
type Table map[State]map[Intent]Step

// Master returns the step of a master that has been in state for the time in. Interrupt only occurs
// under resqued dev.
func Master(state State, intent Intent, in time.Duration) Step {
	return masterTable.step(state, intent, in)
}

// Worker returns the step of a worker process, in state for the time in, for a signal sent to
// this process alone. The operator's wishes for all come from the master by message.
func Worker(state State, intent Intent, in time.Duration) Step {
	return workerTable.step(state, intent, in)
}

var masterTable = Table{
	Starting: {
		Kill:      {Do: Enter, Next: Killing},
		Drain:     {Do: Enter, Next: Draining},
		Interrupt: {Do: Enter, Next: Draining},
		Pause:     {Do: StartPaused, Next: Starting},
		Resume:    {Do: StartRunning, Next: Starting},
		Abort:     {Do: StartRunning, Next: Starting},
		Reload:    {Do: RereadLater, Next: Starting},
	},
	Running: {
		Kill:      {Do: Enter, Next: Killing},
		Drain:     {Do: Enter, Next: Draining},
		Interrupt: {Do: Enter, Next: Draining},
		Abort:     {Do: KillJobs, Next: Running},
		Pause:     {Do: Enter, Next: Paused},
		Resume:    {Do: Repeat, Next: Running},
		Reload:    {Do: Reread, Next: Running},
	},
	Paused: {
		Kill:      {Do: Enter, Next: Killing},
		Drain:     {Do: Enter, Next: Draining},
		Interrupt: {Do: Enter, Next: Draining},
		Abort:     {Do: KillJobs, Next: Running},
		Pause:     {Do: Repeat, Next: Paused},
		Resume:    {Do: Enter, Next: Running},
		Reload:    {Do: Reread, Next: Paused},
	},
	Draining: {
		Kill:      {Do: Enter, Next: Killing},
		Interrupt: {Do: Enter, Next: Killing, again: true},
		Abort:     {Do: KillJobs, Next: Draining},
		Reload:    {Do: Refuse, Next: Draining},
	},
	Killing: {
		Kill:      {Do: KillNow, Next: Killing, again: true},
		Interrupt: {Do: KillNow, Next: Killing, again: true},
		Reload:    {Do: Refuse, Next: Killing},
	},
}

var workerTable = Table{
	Starting: {
		Kill:   {Do: Enter, Next: Killing},
		Drain:  {Do: Enter, Next: Draining},
		Pause:  {Do: StartPaused, Next: Starting},
		Resume: {Do: StartRunning, Next: Starting},
		Abort:  {Do: StartRunning, Next: Starting},
		Reload: {Do: Refuse, Next: Starting},
	},
	Running: {
		Kill:   {Do: Enter, Next: Killing},
		Drain:  {Do: Enter, Next: Draining},
		Abort:  {Do: KillJobs, Next: Running},
		Pause:  {Do: Enter, Next: Paused},
		Reload: {Do: Refuse, Next: Running},
	},
	Paused: {
		Kill:   {Do: Enter, Next: Killing},
		Drain:  {Do: Enter, Next: Draining},
		Abort:  {Do: KillJobs, Next: Running},
		Resume: {Do: Enter, Next: Running},
		Reload: {Do: Refuse, Next: Paused},
	},
	Waiting: {
		Kill:   {Do: Enter, Next: Killing},
		Drain:  {Do: Enter, Next: Draining},
		Pause:  {Do: Enter, Next: Paused},
		Reload: {Do: Refuse, Next: Waiting},
	},
	Retiring: {
		Kill:   {Do: Enter, Next: Killing},
		Drain:  {Do: Enter, Next: Draining},
		Abort:  {Do: KillJobs, Next: Retiring},
		Reload: {Do: Refuse, Next: Retiring},
	},
	Draining: {
		Kill:   {Do: Enter, Next: Killing},
		Abort:  {Do: KillJobs, Next: Draining},
		Reload: {Do: Refuse, Next: Draining},
	},
	Killing: {
		Kill:   {Do: KillNow, Next: Killing, again: true},
		Reload: {Do: Refuse, Next: Killing},
	},
}

func (t Table) step(state State, intent Intent, in time.Duration) Step {
	s, ok := t[state][intent]
	if !ok || s.again && in < Again {
		return Step{Do: Ignore, Next: state}
	}
	return s
}
