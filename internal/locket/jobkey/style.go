// Package jobkey computes the keys of job locks: which jobs exclude each other.
//
// It is the only place that knows the styles of keys. A Redis script computes those of the
// styles class-args and payload (payload.lua), by the same rules as text.go; a
// [Keyer] also computes those that a script cannot: as Ruby inspects the payload, by a
// template such as "{{class}}:{{args.0}}", and by a function of the program. The
// configuration refuses a wrong template at start.
package jobkey

// The styles of job lock keys that have a name; any other is a template.
const (
	ClassArgs = "class-args" // class and arguments; computed in Redis
	Payload   = "payload"    // the whole payload, byte by byte; computed in Redis
	Ruby      = "ruby"       // as resque-locket prints the payload on Ruby up to 3.3
	Ruby34    = "ruby34"     // the same on Ruby 3.4 and later
)

// Styles are the named styles, the default first.
var Styles = []string{ClassArgs, Payload, Ruby, Ruby34}
