package app

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// supervisorVariable has the process id of the process above the masters of several stores.
const supervisorVariable = "RESQUED_SUPERVISOR"

// supervisorEvery is how often a master looks whether that process lives.
const supervisorEvery = time.Second

// Supervisor returns the process that has started this one as the master of one of several
// stores, 0 for none.
func Supervisor() int {
	pid, err := strconv.Atoi(os.Getenv(supervisorVariable))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// followSupervisor has the daemon end when the process above it is gone: without it a next one
// would start another master beside this one. on_master_death says how.
func (d *Daemon) followSupervisor(ctx context.Context, relay *relay) {
	pid := Supervisor()
	if pid == 0 {
		return
	}
	tick := time.NewTicker(supervisorEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if os.Getppid() == pid {
			continue
		}
		sig := syscall.SIGQUIT
		if d.Config.OnMasterDeath == "kill" {
			sig = syscall.SIGTERM
		}
		d.Log.Error("the process above the masters of the stores is gone: this one ends", zap.Int("supervisor", pid))
		select {
		case relay.out <- sig:
		case <-ctx.Done():
		}
		return
	}
}
