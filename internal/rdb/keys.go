package rdb

import "strconv"

// The names of keys that several packages use, without the namespace. See docs/redis-keys.md for all keys.
const (
	KeyMeta     = "resqued:meta"
	KeyInflight = "resqued:inflight:"
	KeySuspects = "resqued:suspects:"
	KeyDelayed  = "resqued:delayed"
	KeyLines    = "resqued:lines:"
	KeyTurns    = "resqued:turns:"
)

// Key adds the namespace to a name.
func (c *Client) Key(name string) string { return c.Prefix + name }

// QueueKey returns the key of the list of a queue's payloads.
func (c *Client) QueueKey(queue string) string { return c.Prefix + "queue:" + queue }

// LineKey is the list of a queue's jobs that wait for the job lock name; see lua/lib/lines.lua.
func (c *Client) LineKey(queue, name string) string {
	return c.Prefix + "resqued:line:" + strconv.Itoa(len(queue)) + ":" + queue + ":" + name
}

// TurnKey is the list of a queue's jobs of one place that wait for turns; see lua/lib/lines.lua.
func (c *Client) TurnKey(queue, place string) string {
	return c.Prefix + "resqued:turn:" + strconv.Itoa(len(queue)) + ":" + queue + ":" + place
}

// RunName names one run of a job. In flight, its record is field Token of KeyInflight + Proc.
type RunName struct{ Proc, Token string }

// String returns the name as people write it; see resqued.Job.ID.
func (n RunName) String() string { return n.Proc + "/" + n.Token }
