// Package devredis is the Redis of a first run.
package devredis
