package cli

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
)

// filterFlags are the conditions on jobs of a kind, a flag for each.
type filterFlags struct {
	client.Filter
	kind  filter.Kind
	words url.Values
}

// add declares the flags. They are read before the verb runs.
func (o *filterFlags) add(f *flagSet, kind filter.Kind) {
	o.kind = kind
	if o.words == nil { // a list and its "ls" share them
		o.words = url.Values{}
	}
	for _, w := range filter.Words(kind) {
		f.Var(&wordFlag{o.words, w}, w.Name, "only "+w.Help)
	}
	f.check(func() error { return o.read(time.Now()) })
}

// read sets the conditions; ages count from now.
func (o *filterFlags) read(now time.Time) error {
	read, err := filter.Parse(o.words, o.kind, now)
	if wrong, ok := errors.AsType[*filter.WordError](err); ok {
		return usage("", "--%s", wrong.Error())
	}
	read.All, read.Limit = o.All, o.Limit
	o.Filter = client.Filter(read)
	return err
}

// unlimited returns the conditions without the limit.
func (o *filterFlags) unlimited() client.Filter {
	f := o.Filter
	f.Limit = 0
	return f
}

// filtered reports whether a condition, or --all, is given.
func (o *filterFlags) filtered() bool {
	return o.All || len(o.words) > 1 || len(o.words) == 1 && o.words.Get("retried") != "any"
}

func (o *filterFlags) matcher(ctx context.Context) (*filter.Matcher, error) {
	if err := o.read(time.Now()); err != nil { // with --watch ages go on
		return nil, err
	}
	return filter.Filter(o.Filter).Matcher(ctx, o.kind)
}

// conditions names the flags for an error.
func (o *filterFlags) conditions() string {
	var flags []string
	for _, w := range filter.Words(o.kind) {
		flags = append(flags, "--"+w.Name)
	}
	return strings.Join(flags, ", ")
}

// wordFlag is a condition as a flag.
type wordFlag struct {
	words url.Values
	word  filter.Word
}

func (f *wordFlag) String() string { return "" }

// Type names the value in help.
func (f *wordFlag) Type() string { return f.word.Value }

// Set adds a value.
func (f *wordFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty")
	}
	f.words.Add(f.word.Name, text)
	return nil
}
