package procfs

// BootTime returns the time since boot. Unlike Go's monotonic clock, it includes time suspended. Only the
// simulation of test/sim puts another clock here.
var BootTime = bootTime
