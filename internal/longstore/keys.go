package longstore

// The names of the keys of long jobs, without the namespace. docs/redis-keys.md describes
// them.
const (
	keyLongRun     = "resqued:longjob:run:"
	keyLongState   = "resqued:longjob:state:"
	keyLongCurrent = "resqued:longjob:current"
	keyLongActive  = "resqued:longjob:active"
	keyLongEnded   = "resqued:longjob:ended"
	keyLongLocks   = "resqued:longjob:locks"

	keyLongBusy    = "resqued:longjob:busy:"
	keyLongLine    = "resqued:longjob:line:"
	keyLongTenants = "resqued:longjob:tenants"
	keyLongShares  = "resqued:longjob:shares"

	keyLongRecurring = "resqued:longjob:recurring"
	keyLongRecur     = "resqued:longjob:recur:"
	keyLongSubjects  = "resqued:longjob:subjects:"
	keyLongStarts    = "resqued:longjob:starts:"
)
