// Package jobkey computes the keys of job locks: which jobs exclude each other.
//
// Only this package knows the styles of keys. A Redis script computes class-args and payload
// (payload.lua), by the same algorithm as text.go. A [Keyer] also computes keys that a script
// cannot: the payload as Ruby inspects it, a template such as "{{class}}:{{args.0}}", and a
// function of the program. The configuration rejects a bad template at start.
package jobkey

// The named styles of job-lock keys; any other style is a template.
const (
	ClassArgs = "class-args" // class and arguments; computed in Redis
	Payload   = "payload"    // the whole payload, byte by byte; computed in Redis
	Ruby      = "ruby"       // as resque-locket prints the payload on Ruby up to 3.3
	Ruby34    = "ruby34"     // the same on Ruby 3.4 and later
)

// Styles are the named styles, the default first.
var Styles = []string{ClassArgs, Payload, Ruby, Ruby34}
