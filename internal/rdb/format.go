package rdb

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// formats is the source of Known: the format that this program writes, and the oldest and newest that
// it reads. It is a variable for tests that link another format (-ldflags -X). See
// docs/redis-keys.md for formats and CONTRIBUTING.md for when to raise the number.
var formats = "1:1-1"

// DefaultFormat is the format of data without a number, written before there were numbers.
const DefaultFormat = 1

// Formats are the format numbers that a program knows. A format is the layout of all keys below
// resqued: that one process writes and another one acts on.
type Formats struct {
	// Writes is the format in which the program writes.
	Writes int
	// Oldest and Newest bound the formats that it reads.
	Oldest, Newest int
}

// Known returns the formats of this program.
var Known = sync.OnceValue(func() (f Formats) {
	if n, err := fmt.Sscanf(formats, "%d:%d-%d", &f.Writes, &f.Oldest, &f.Newest); n != 3 || err != nil || f.Oldest < 1 || f.Writes < f.Oldest || f.Newest < f.Writes {
		panic("formats " + formats + ": the format that is written has to be one that is read")
	}
	return f
})

// Reads reports whether the program reads a format, as found in Redis; "" = none found.
func (f Formats) Reads(format string) bool {
	if format == "" {
		format = strconv.Itoa(DefaultFormat)
	}
	n, err := strconv.Atoi(format)
	return err == nil && n >= f.Oldest && n <= f.Newest
}

func (f Formats) String() string {
	if f.Oldest == f.Newest {
		return fmt.Sprintf("format %d", f.Oldest)
	}
	return fmt.Sprintf("formats %d to %d", f.Oldest, f.Newest)
}

// The fields of KeyMeta: the newest format in which any process has written, and which version on
// which host first did so.
const (
	MetaFormat   = "format"
	MetaFormatBy = "format_by"
)

// FormatError reports data in Redis in a format that this program does not read.
type FormatError struct {
	// The data in question, for messages.
	What string
	// Format is the format found in Redis; By is its writer, "" = unknown.
	Format, By string
}

func (e *FormatError) Error() string {
	by := ""
	if e.By != "" {
		by = ", written by resqued " + e.By
	}
	return fmt.Sprintf("%s has format %.20q%s, and this program reads %s: run a version of resqued here that reads format %.20q (docs/redis-keys.md, \"Versions side by side\")",
		e.What, e.Format, by, Known(), e.Format)
}

// CheckFormat returns a *FormatError if a process has written to this namespace in a format that this program
// does not read.
func (c *Client) CheckFormat(ctx context.Context) error {
	values, err := c.Read.HMGet(ctx, c.Key(KeyMeta), MetaFormat, MetaFormatBy).Result()
	switch {
	case err != nil && (Unreachable(err) || Waitable(err)):
		return fmt.Errorf("redis at %s: read %s: %w", c.Where(), c.Key(KeyMeta), err)
	case err != nil || len(values) != 2:
		return nil //nolint:nilerr // no hash, or no right to read it, which others report
	}
	format, _ := values[0].(string)
	by, _ := values[1].(string)
	if Known().Reads(format) {
		return nil
	}
	return &FormatError{What: fmt.Sprintf("redis at %s: what is below %sresqued:", c.Where(), c.Prefix), Format: format, By: printable(by)}
}

// printable makes text from Redis safe for a terminal.
func printable(text string) string {
	quoted := strconv.QuoteToASCII(text[:min(len(text), 200)])
	return quoted[1 : len(quoted)-1]
}
