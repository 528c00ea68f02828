package longstore

// The names of the keys of long jobs, without the namespace; see docs/redis-keys.md.
const (
	keyRun     = "resqued:longjob:run:"
	keyState   = "resqued:longjob:state:"
	keySlices  = "resqued:longjob:slices:"
	keyCurrent = "resqued:longjob:current"
	keyActive  = "resqued:longjob:active"
	keyEnded   = "resqued:longjob:ended"
	keyLocks   = "resqued:longjob:locks"

	keyBusy    = "resqued:longjob:busy:"
	keyLine    = "resqued:longjob:line:"
	keyTenants = "resqued:longjob:tenants"
	keyNext    = "resqued:longjob:next"
	keyHungry  = "resqued:longjob:hungry"
	keyStepped = "resqued:longjob:stepped"
	keyShares  = "resqued:longjob:shares"

	keyRecurring = "resqued:longjob:recurring"
	keyRecur     = "resqued:longjob:recur:"
	keySubjects  = "resqued:longjob:subjects:"
	keyStarts    = "resqued:longjob:starts:"
)
