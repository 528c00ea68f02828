// Command resqued works the jobs of Resque queues with the commands that its configuration names.
// A program with handlers in Go calls daemon.Main.
package main

import (
	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
)

func main() { daemon.Main(resqued.New()) }
