package store

// The names of all keys of this package, without the namespace. docs/redis-keys.md describes them; the scripts
// build the names of per-job keys.
const (
	keyQueues = "queues"
	keyFailed = "failed"

	keyFailedLists = "failed_queues" // of Resque's multi-queue failure backend
	keySifting     = "resqued:sifting"
	keyPassed      = "resqued:passed:"

	keyWorkers   = "workers"
	keyProcessed = "stat:processed"
	keyFailures  = "stat:failed"
	keyCounters  = "locket:queue_lock_counters"
	keyJobLocks  = "locket:job_locks:"
	keyClassLock = "lock:"
	keySeen      = "resqued:seen:"
	keyBlocked   = "resqued:blocked:"
	keyHeld      = "resqued:held:"
	keyProcs     = "resqued:procs"
	keyProcInfo  = "resqued:proc:"
	keyMaster    = "resqued:master:"
	keyMasters   = "resqued:masters"
	keySchedule  = "delayed_queue_schedule" // this and the next two are resque-scheduler's
	keyDueAt     = "delayed:"
	keyDueLists  = "timestamps:"
	keyKills     = "resqued:kills:"
	keyKilled    = "resqued:killed:"
	keyOrders    = "resqued:orders:"
	keyOrdered   = "resqued:ordered:"
	keyEmpty     = "resqued:empty"
	keyPruned    = "resqued:pruned"
	keyRelock    = "resqued:relock"
	keyAsked     = "resqued:asked:"

	keyParked        = "resqued:parked"
	keyParkedPayload = "resqued:parked:"
	keyParking       = "resqued:parking"

	keyMoving     = "resqued:moving"
	keyMovingJobs = "resqued:moving:"
	keyMoved      = "resqued:moved"

	keyCron         = "resqued:cron"
	keyShown        = "resqued:schedules"
	keyKept         = "resqued:schedules:kept"
	keyStored       = "persistent_schedules"
	keyChanged      = "schedules_changed"
	keyLastEnqueued = "delayed:last_enqueued_at"

	keyAge      = "resqued:age"
	keyAgeLists = "resqued:age:lists"
	keyAgeTurn  = "resqued:age:turn"

	keyPauseQueue   = "pause:queue:"
	keyPauseAll     = "pause:all"
	keyPauseWorkers = "pause-all-workers"
)

// workerKey returns the key of a worker's current job, for web pages and exporters.
func (s *Store) workerKey(id string) string { return s.db.Prefix + "worker:" + id }
