// Package control is the socket through which a running daemon takes requests on its own
// machine: JSON lines over a unix stream socket that only its user can reach. server.go is the
// daemon's side, client.go the other, and place.go says where the sockets are.
package control

import "time"

// Version is the version of the messages. Each side refuses any other.
const Version = 1

const (
	Reload  = "reload"
	Upgrade = "upgrade"
	Status  = "status"
	Drain   = "drain" // like signal QUIT; answered at once
)

// Unknown is the answer to a request that a daemon of another version does not know.
const Unknown = "the daemon does not know this request: use the program of its own version"

// Request is the one line that a client sends.
type Request struct {
	V  int    `json:"v"`
	Do string `json:"do"`
}

// Reply is the one line that the daemon answers, once it knows the outcome of the request.
type Reply struct {
	V  int  `json:"v"`
	OK bool `json:"ok"`
	// Elsewhere: another process has taken over; ask that one.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// PID is the daemon's process, Version its program's version.
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	// Text says what is in force and what is under way, or why nothing has changed. It may have
	// several lines.
	Text string `json:"text,omitempty"`

	// State to Takes answer Status: the daemon's state, the number of ready worker processes,
	// why Redis is unusable ("" = it is usable), which runners are missing, and how long a new
	// version may take to be ready. Older daemons send only Text.
	State   string `json:"state,omitempty"`
	Ready   int    `json:"ready,omitempty"`
	Outage  string `json:"outage,omitempty"`
	Trouble string `json:"trouble,omitempty"`

	Takes time.Duration `json:"takes_ns,omitempty"`
	// Store is the store that the daemon works, in an answer to Status; "" = the configuration
	// names none.
	Store string `json:"store,omitempty"`
	// Redis is what its configuration says of Redis, without the password, and the namespace.
	Redis string `json:"redis,omitempty"`
}

// maxLine bounds a message, in bytes.
const maxLine = 64 << 10
