package signals

import "time"

// Again is how long after the first kill request a further one means SIGKILL.
// Requests that come sooner are taken for copies of the first: a terminal, a
// wrapper script and systemd may each send their own.
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
	// StartPaused and StartRunning: note in which state the start shall end.
	StartPaused  Action = "start paused"
	StartRunning Action = "start running"
	// Repeat: tell every worker process the state again. One may have left it by a signal of its own.
	Repeat Action = "tell all again"
	// Reread: read the configuration again and roll the worker processes.
	Reread Action = "reload"
	// RereadLater: the same, as soon as the start has ended.
	RereadLater Action = "reload after the start"
	// Refuse: not in this state; say so in the log.
	Refuse Action = "refused"
	// KillNow: SIGKILL for what is still there, at once.
	KillNow Action = "SIGKILL now"
)

// Step is one cell of a table: what to do, and the state afterwards.
type Step struct {
	Do   Action
	Next State
	// again: the step is only taken when the state has lasted for Again.
	again bool
}

// Table holds the step for each state and intent of one kind of process. What
// it does not list is ignored.
type Table map[State]map[Intent]Step

// Master returns what a master in state, which it entered in ago, does about
// intent. A master under resqued dev also knows Interrupt.
func Master(state State, intent Intent, in time.Duration) Step {
	return masterTable.step(state, intent, in)
}

// Worker returns what a worker process in state, which it entered in ago, does
// about a signal of its own. It concerns this process alone; what the operator
// wants of all of them comes from the master by message.
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
