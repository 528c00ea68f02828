package store

import (
	"context"
	"maps"
	"strconv"

	"github.com/resqued/resqued/internal/rdb"
)

// Fields of the entries of processes and masters: the format in which they write, the formats
// that they read, and whose they are.
const (
	InfoFormat  = "format"
	infoReads   = "reads"
	InfoVersion = "version"
	infoHost    = "host"
)

// formatted adds to the fields of an entry which formats this program writes and reads.
func formatted(fields map[string]string) map[string]string {
	f := rdb.Known()
	all := maps.Clone(fields)
	if all == nil {
		all = map[string]string{}
	}
	all[InfoFormat] = strconv.Itoa(f.Writes)
	all[infoReads] = strconv.Itoa(f.Oldest) + "-" + strconv.Itoa(f.Newest)
	return all
}

// Readable reports whether this program reads what the owner of an entry has written.
func Readable(fields map[string]string) bool { return rdb.Known().Reads(fields[InfoFormat]) }

// CheckFormat returns a *rdb.FormatError if processes have written to this namespace in a format
// that this program does not read.
func (s *Store) CheckFormat(ctx context.Context) error { return s.db.CheckFormat(ctx) }

// FormatsRead names the formats that this program reads.
func FormatsRead() string { return rdb.Known().String() }
