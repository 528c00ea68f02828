// Package longstore holds the runs of long jobs in Redis: one Go method for each script of
// lua/. A slice of a run is a job like any other; package store has its record in flight.
//
// What is where: runs.go is what clients and slices do with a run, look.go how runs are
// looked at, recur.go the ticks of recurring long jobs and recur_look.go how these are
// looked at. sweeper.go resumes runs that are lost; it runs beside the loop of a master.
package longstore

import (
	"embed"

	"github.com/resqued/resqued/internal/rdb"
)

// Lua holds the scripts of this package; see rdb.NewScript.
//
//go:embed lua/*.lua lua/lib/*.lua
var Lua embed.FS

// Store holds the runs of long jobs in one Redis. It is safe for concurrent use.
type Store struct{ db *rdb.Client }

// New returns a store that uses the connections of db.
func New(db *rdb.Client) *Store { return &Store{db: db} }
