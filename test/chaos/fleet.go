package main

import (
	"errors"
	"fmt"
	"os"
)

// place decides which daemons there are and where: a and c share a host without seeing each
// other, b has its own.
func (c *chaos) place() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	add := func(name string, workers, threads int, where []string) *machine {
		m := &machine{
			name: name, workerCount: workers, threadCount: threads, place: where, program: self, run: c, dir: c.dir,
			lease: c.o.leases()[len(c.machines)], mark: fmt.Sprintf("chaos-%d-%s", os.Getpid(), name),
		}
		c.machines = append(c.machines, m)
		return m
	}
	if where := containerOn("chaos-d"); where != nil {
		c.guest = add("d", 2, 2, where)
		c.guest.container, c.guest.lease = true, c.o.lease
		c.machines = nil
	}
	a := add("a", 2, 4, hostName("chaos-a"))
	if add("b", 6, 1, hostName("chaos-b")).place == nil {
		fmt.Println("chaos: no host names of their own here: all daemons are on one host")
	}
	program, err := hide(c.dir, c.ledgerDir)
	if err != nil {
		fmt.Printf("chaos: no daemons here that do not see each other: %v\n", err)
		return nil
	}
	other := add("c", 1, 2, hidden("chaos-a", otherUser))
	a.place, a.user, a.program = hidden("chaos-a", oneUser), oneUser, program
	other.user, other.program = otherUser, program
	return nil
}

// exclude leaves out the faults that are impossible here, and logs that.
func (c *chaos) exclude() error {
	if c.guest == nil {
		c.leaveOut("container-restart", errors.New("unshare makes no PID namespace"))
	}
	if err := c.makeTool(); err != nil {
		return err
	}
	held, err := takeLease(c.tool())
	if err != nil {
		c.leaveOut("exec-blocked", err)
		return nil
	}
	held.giveUp()
	return nil
}

// leaveOut leaves out a kind of fault.
func (c *chaos) leaveOut(kind string, err error) {
	fmt.Printf("chaos: no %s here: %v\n", kind, err)
	c.o.without = append(c.o.without, kind)
}
