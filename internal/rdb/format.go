package rdb

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// formats are the numbers of Known: what this program writes, and the oldest and the newest
// format that it reads. It is a variable so that a test can link a program of another format
// (-ldflags -X). docs/redis-keys.md says what a format is, CONTRIBUTING.md when its number is
// raised.
var formats = "1:1-1"

// DefaultFormat is the format of what says none: it was written before there were numbers.
const DefaultFormat = 1

// Formats are the numbers of formats that a program knows. A format is what all keys below
// resqued: look like that one process writes and another one acts upon.
type Formats struct {
	// Writes is the format in which the program writes.
	Writes int
	// Oldest and Newest bound those that it reads.
	Oldest, Newest int
}

// Known are the formats of this program.
var Known = sync.OnceValue(func() (f Formats) {
	if n, err := fmt.Sscanf(formats, "%d:%d-%d", &f.Writes, &f.Oldest, &f.Newest); n != 3 || err != nil || f.Oldest < 1 || f.Writes < f.Oldest || f.Newest < f.Writes {
		panic("formats " + formats + ": the format that is written has to be one that is read")
	}
	return f
})

// Reads reports whether a format, as it stands in Redis, is one that the program reads; "" =
// none stands there.
func (f Formats) Reads(format string) bool {
	if format == "" {
		format = strconv.Itoa(DefaultFormat)
	}
	n, err := strconv.Atoi(format)
	return err == nil && n >= f.Oldest && n <= f.Newest
}

// String names the formats that the program reads.
func (f Formats) String() string {
	if f.Oldest == f.Newest {
		return fmt.Sprintf("format %d", f.Oldest)
	}
	return fmt.Sprintf("formats %d to %d", f.Oldest, f.Newest)
}

// Fields of KeyMeta: the newest format in which any process has written here, and which version
// on which host was the first to do so.
const (
	MetaFormat   = "format"
	MetaFormatBy = "format_by"
)

// FormatError reports that something in Redis has a format that this program does not read.
type FormatError struct {
	// What has the format.
	What string
	// Format is as it stands in Redis; By says who has written it, "" = that is not known.
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

// CheckFormat returns a *FormatError if processes have written to this namespace in a format that
// this program does not read.
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
	return &FormatError{What: fmt.Sprintf("redis at %s: what stands below %sresqued:", c.Where(), c.Prefix), Format: format, By: printable(by)}
}

// printable returns a text that others wrote without what a terminal would obey.
func printable(text string) string {
	quoted := strconv.QuoteToASCII(text[:min(len(text), 200)])
	return quoted[1 : len(quoted)-1]
}
