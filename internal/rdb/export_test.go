package rdb

import "time"

// A read tries four times to reach a server that does not answer, so its test would wait for 12 seconds.
func init() { dialTimeout = 500 * time.Millisecond }
