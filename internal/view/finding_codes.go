package view

// Codes of findings, in the order of the checks. TestRunbooks compares the comments with the titles
// of docs/operations.md.
const (
	CodeUnchecked         = "unchecked"          // a check could not be made
	CodeConfigWarning     = "config_warning"     // the configuration works, and may not be meant
	CodeConfigDatabase    = "config_database"    // PostgreSQL is to be used, and cannot
	CodeRedisFar          = "redis_far"          // an answer of Redis takes long
	CodeRedisReplica      = "redis_replica"      // Redis is a replica
	CodeRedisEvicts       = "redis_evicts"       // Redis may throw away jobs
	CodeRedisFull         = "redis_full"         // the memory of Redis is nearly full
	CodeRedisConnections  = "redis_connections"  // the connections of Redis are nearly used up
	CodeRedisUnsaved      = "redis_unsaved"      // Redis cannot write its data
	CodeRedisNoLog        = "redis_no_log"       // Redis keeps no log of its writes
	CodeClockAskew        = "clock_askew"        // clocks differ
	CodeNoDaemon          = "no_daemon"          // no daemon runs
	CodeDaemonGhost       = "daemon_ghost"       // an entry of a worker without a process
	CodeDaemonUnreadable  = "daemon_unreadable"  // the entry of a daemon is of another type
	CodeDaemonGone        = "daemon_gone"        // the lease of a daemon has ended
	CodeDaemonSilent      = "daemon_silent"      // no process of a daemon beats
	CodeDaemonPaused      = "daemon_paused"      // a daemon is paused
	CodeSettingsDiffer    = "settings_differ"    // daemons disagree on what they have to agree on
	CodeVersionDiffers    = "version_differs"    // daemons have different versions or configurations
	CodeProcessUnreadable = "process_unreadable" // what a process does cannot be read
	CodeProcessSilent     = "process_silent"     // a worker process does not beat
	CodeJobStubborn       = "job_stubborn"       // a job does not stop
	CodeRunnerFailed      = "runner_failed"      // a runner cannot be started
	CodeSuspects          = "suspects"           // jobs that may have killed their process
	CodeQueueOrphan       = "queue_orphan"       // a queue that nothing works
	CodeQueueBroken       = "queue_broken"       // the key of a queue is not a list
	CodeQueueLate         = "queue_late"         // a queue that is late
	CodeQueueStarved      = "queue_starved"      // all jobs of a queue are locked
	CodeQueueLimited      = "queue_limited"      // jobs of a queue wait for limits
	CodeQueuePaused       = "queue_paused"       // a paused queue with jobs
	CodeUniqueBroken      = "unique_broken"      // a key of a unique queue is of another type
	CodeUniqueOutOfStep   = "unique_out_of_step" // the keys of a unique queue do not match
	CodeLockOrphan        = "lock_orphan"        // a lock without a job
	CodeLockExpired       = "lock_expired"       // a lock whose time is past
	CodeJobParked         = "job_parked"         // ends of jobs that cannot be written
	CodeScheduleInvalid   = "schedule_invalid"   // a schedule that cannot be read
	CodeScheduleLate      = "schedule_late"      // a schedule that nothing keeps
	CodeMoveUnfinished    = "move_unfinished"    // jobs on their way to another store
	CodeUnitKillMode      = "unit_kill_mode"     // a unit ends more, or less, than it should
	CodeUnitKillSignal    = "unit_kill_signal"   // a stop of a unit kills jobs
	CodeUnitRestart       = "unit_restart"       // a unit is not always started again
	CodeUnitFailed        = "unit_failed"        // a unit has failed
)
