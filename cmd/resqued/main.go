// Command resqued works the jobs of Resque queues. Its handlers are the commands
// that the configuration names; a program with handlers in Go calls daemon.Main
// itself.
package main

import (
	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
)

func main() { daemon.Main(resqued.New()) }
