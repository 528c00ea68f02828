package procfs

// OOM counts the processes that the kernel has killed because memory ran out.
type OOM struct {
	Kills int64
	// Where is what the count covers, in words; empty = unreadable.
	Where string
}
