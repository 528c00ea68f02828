package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		config     Config
		processors int
		commands   bool
		want       Tasks
	}{
		{
			"the least",
			Config{WorkerCount: 1, ThreadCount: 1},
			1, false,
			Tasks{Processes: 5, Own: 5*17 + 2*2 + 1},
		},
		{
			"commands are counted once for each job that may run",
			Config{WorkerCount: 4, ThreadCount: 16, MaxRetiring: 1},
			2, true,
			Tasks{Processes: 1 + 5 + 1 + 16, Own: 23*18 + 5*20 + 16, Commands: 5*16 + 16},
		},
		{
			"more slots than threads: as many suspects",
			Config{WorkerCount: 8, ThreadCount: 2, MaxRetiring: 3},
			4, true,
			Tasks{Processes: 1 + 11 + 1 + 8, Own: 21*20 + 11*3 + 8, Commands: 11*2 + 8},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.config.Tasks(tt.processors, tt.commands)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.want.Own+tt.want.Commands, got.Sum())
		})
	}
}
