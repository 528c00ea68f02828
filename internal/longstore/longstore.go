// Package longstore stores the runs of long jobs in Redis: one Go method for each script of lua/. A slice of
// a run is an ordinary job; package store has its in-flight record.
//
// runs.go is for clients and slices; look.go reads runs; recur.go makes the ticks of recurring long jobs;
// recur_look.go reads these. sweeper.go resumes lost runs, outside a master's loop.
package longstore

import (
	"embed"

	"github.com/resqued/resqued/internal/rdb"
)

// Lua holds the scripts of this package; see rdb.NewScript.
//
//go:embed lua/*.lua lua/lib/*.lua
var Lua embed.FS

// Store stores the runs of long jobs in one Redis. It is safe for concurrent use.
type Store struct{ db *rdb.Client }

// New returns a store on the connections of db.
func New(db *rdb.Client) *Store { return &Store{db: db} }
