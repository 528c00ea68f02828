package rdb

// Blocking makes a connection one whose reads and writes block.
var Blocking = blocking
