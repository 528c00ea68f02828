package resquedtest

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// sequence numbers the worker processes of this program.
var sequence atomic.Int64

// master is the other end of a worker process's socket. It welcomes the process, and can tell
// it to exit.
type master struct {
	down   chan proc.Message
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex
	reason string
}

func newMaster() *master {
	// One welcome and one order to exit: sending never blocks.
	return &master{down: make(chan proc.Message, 2), closed: make(chan struct{})}
}

// Send receives a message of the process.
func (m *master) Send(message proc.Message) error {
	switch message.Type {
	case proc.Hello:
		m.down <- proc.Message{
			Type: proc.Welcome, Protocol: proc.Protocol, Slots: 1, State: string(signals.Running),
			Proc: fmt.Sprintf("resquedtest:00000000-0000-0000-0000-000000000000:1-1:0.%d", sequence.Add(1)),
		}
	case proc.Tainted:
		m.mu.Lock()
		m.reason = message.Reason
		m.mu.Unlock()
	}
	return nil
}

// Recv waits for a message to the process. It returns io.EOF after close.
func (m *master) Recv() (proc.Message, error) {
	select {
	case message := <-m.down:
		return message, nil
	case <-m.closed:
		return proc.Message{}, io.EOF
	}
}

// drain tells the process to exit after its current job. It is called once.
func (m *master) drain() {
	m.down <- proc.Message{Type: proc.SetState, State: string(signals.Draining)}
}

func (m *master) close() { m.once.Do(func() { close(m.closed) }) }
