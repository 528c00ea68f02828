// Package control is the socket by which a running daemon is asked for something, on its own
// machine: JSON lines over a unix stream socket that its user alone can reach. server.go is the
// daemon's side, client.go that of whoever asks, place.go where the sockets are.
package control

import "time"

// Version is that of the messages. A side that reads another one refuses it.
const Version = 1

// What may be asked for.
const (
	Reload  = "reload"
	Upgrade = "upgrade"
	Status  = "status"
	Drain   = "drain" // as signal QUIT; answered at once
)

// Unknown is the text of the answer to a request that the daemon, of another version, does not know.
const Unknown = "the daemon does not know this request: use the program of its own version"

// Request is the one line that a client sends.
type Request struct {
	V int `json:"v"`
	// Do is one of those above.
	Do string `json:"do"`
}

// Reply is the one line that the daemon answers, when it knows what has become of the request.
type Reply struct {
	V  int  `json:"v"`
	OK bool `json:"ok"`
	// Elsewhere: another process has taken over meanwhile; it is to be asked.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// PID is the daemon's process, Version that of its program.
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	// Text says what is in force and what goes on, or why nothing has changed. It may have
	// several lines.
	Text string `json:"text,omitempty"`

	// State, Ready, Outage, Trouble and Takes are of an answer to Status: the daemon's state, how many worker
	// processes are ready, why Redis is of no use, "" = it is, which runners are not there, and how long a
	// new version may take to be ready. Older daemons say only Text.
	State   string `json:"state,omitempty"`
	Ready   int    `json:"ready,omitempty"`
	Outage  string `json:"outage,omitempty"`
	Trouble string `json:"trouble,omitempty"`

	Takes time.Duration `json:"takes_ns,omitempty"`
	// Store is the one that the daemon works, in an answer to Status; "" = the configuration has none.
	Store string `json:"store,omitempty"`
}

// maxLine bounds a message, in bytes.
const maxLine = 64 << 10
