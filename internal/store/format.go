package store

import (
	"context"
	"maps"
	"strconv"

	"github.com/resqued/resqued/internal/rdb"
)

// Fields of the entries of processes and masters.
const (
	InfoFormat  = "format"
	infoReads   = "reads"
	InfoVersion = "version"
	infoHost    = "host"
)

// formatted adds the formats that this program writes and reads to an entry's fields.
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

// Readable reports whether this program reads the format of an entry's owner.
func Readable(fields map[string]string) bool { return rdb.Known().Reads(fields[InfoFormat]) }

// CheckFormat returns a *rdb.FormatError if a process has written to this namespace in a format that this
// program does not read.
func (s *Store) CheckFormat(ctx context.Context) error { return s.db.CheckFormat(ctx) }

// FormatsRead names the formats that this program reads.
func FormatsRead() string { return rdb.Known().String() }
