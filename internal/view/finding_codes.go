package view

// Codes of findings.
const (
	CodeUnchecked         = "unchecked"
	CodeConfigWarning     = "config_warning"
	CodeConfigDatabase    = "config_database"
	CodeRedisFar          = "redis_far"
	CodeRedisReplica      = "redis_replica"
	CodeRedisEvicts       = "redis_evicts"
	CodeRedisFull         = "redis_full"
	CodeRedisConnections  = "redis_connections"
	CodeRedisUnsaved      = "redis_unsaved"
	CodeRedisNoLog        = "redis_no_log"
	CodeClockAskew        = "clock_askew"
	CodeNoDaemon          = "no_daemon"
	CodeDaemonGhost       = "daemon_ghost"
	CodeDaemonUnreadable  = "daemon_unreadable"
	CodeDaemonGone        = "daemon_gone"
	CodeDaemonSilent      = "daemon_silent"
	CodeDaemonPaused      = "daemon_paused"
	CodeSettingsDiffer    = "settings_differ"
	CodeVersionDiffers    = "version_differs"
	CodeProcessUnreadable = "process_unreadable"
	CodeProcessSilent     = "process_silent"
	CodeJobStubborn       = "job_stubborn"
	CodeRunnerFailed      = "runner_failed"
	CodeSuspects          = "suspects"
	CodeQueueOrphan       = "queue_orphan"
	CodeQueueBroken       = "queue_broken"
	CodeQueueLate         = "queue_late"
	CodeQueueStarved      = "queue_starved"
	CodeQueuePaused       = "queue_paused"
	CodeUniqueBroken      = "unique_broken"
	CodeUniqueOutOfStep   = "unique_out_of_step"
	CodeLockOrphan        = "lock_orphan"
	CodeLockExpired       = "lock_expired"
	CodeJobParked         = "job_parked"
	CodeScheduleInvalid   = "schedule_invalid"
	CodeScheduleLate      = "schedule_late"
	CodeMoveUnfinished    = "move_unfinished"
	CodeUnitKillMode      = "unit_kill_mode"
	CodeUnitKillSignal    = "unit_kill_signal"
	CodeUnitRestart       = "unit_restart"
	CodeUnitFailed        = "unit_failed"
)

// FindingCodes are all codes with their meanings, in the order of the checks.
var FindingCodes = []struct{ Code, About string }{
	{CodeUnchecked, "a check could not be made"},
	{CodeConfigWarning, "the configuration works, and may not be meant"},
	{CodeConfigDatabase, "PostgreSQL is to be used, and cannot"},
	{CodeRedisFar, "an answer of Redis takes long"},
	{CodeRedisReplica, "Redis is a replica"},
	{CodeRedisEvicts, "Redis may throw away jobs"},
	{CodeRedisFull, "the memory of Redis is nearly full"},
	{CodeRedisConnections, "the connections of Redis are nearly used up"},
	{CodeRedisUnsaved, "Redis cannot write its data"},
	{CodeRedisNoLog, "Redis keeps no log of its writes"},
	{CodeClockAskew, "clocks differ"},
	{CodeNoDaemon, "no daemon runs"},
	{CodeDaemonGhost, "an entry of a worker without a process"},
	{CodeDaemonUnreadable, "the entry of a daemon is of another type"},
	{CodeDaemonGone, "the lease of a daemon has ended"},
	{CodeDaemonSilent, "no process of a daemon beats"},
	{CodeDaemonPaused, "a daemon is paused"},
	{CodeSettingsDiffer, "daemons disagree on what they have to agree on"},
	{CodeVersionDiffers, "daemons have different versions or configurations"},
	{CodeProcessUnreadable, "what a process does cannot be read"},
	{CodeProcessSilent, "a worker process does not beat"},
	{CodeJobStubborn, "a job does not stop"},
	{CodeRunnerFailed, "a runner cannot be started"},
	{CodeSuspects, "jobs that may have killed their process"},
	{CodeQueueOrphan, "a queue that nothing works"},
	{CodeQueueBroken, "the key of a queue is not a list"},
	{CodeQueueLate, "a queue that is late"},
	{CodeQueueStarved, "all jobs of a queue are locked"},
	{CodeQueuePaused, "a paused queue with jobs"},
	{CodeUniqueBroken, "a key of a unique queue is of another type"},
	{CodeUniqueOutOfStep, "the keys of a unique queue do not match"},
	{CodeLockOrphan, "a lock without a job"},
	{CodeLockExpired, "a lock whose time is past"},
	{CodeJobParked, "ends of jobs that cannot be written"},
	{CodeScheduleInvalid, "a schedule that cannot be read"},
	{CodeScheduleLate, "a schedule that nothing keeps"},
	{CodeMoveUnfinished, "jobs on their way to another store"},
	{CodeUnitKillMode, "a unit ends more, or less, than it should"},
	{CodeUnitKillSignal, "a stop of a unit kills jobs"},
	{CodeUnitRestart, "a unit is not always started again"},
	{CodeUnitFailed, "a unit has failed"},
}
