package resqued

import (
	"encoding/json"
	"math"
	"reflect"

	"github.com/resqued/resqued/internal/jsontext"
)

// RubyFloat is a float64 that arguments have as Ruby writes it: 1.0 and 1.0e-05, where
// encoding/json writes 1 and 0.00001. Ruby programs dequeue jobs by the text of their
// arguments, and text is what unique queues and the lock keys of Ruby's style compare; with
// RubyFloat in place of float64 a job that a Go program enqueues equals one that Ruby does.
//
// The text is that of Float#to_s, which Ruby's json gem writes before its version 2.10;
// later ones write very large and very small numbers in another way. As an argument of a
// handler RubyFloat takes any number.
type RubyFloat float64

// MarshalJSON returns the number as Ruby writes it. Like Ruby, it refuses what JSON has no
// text for: infinities and what is no number.
func (f RubyFloat) MarshalJSON() ([]byte, error) {
	x := float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, &json.UnsupportedValueError{Value: reflect.ValueOf(x), Str: string(jsontext.AppendRubyFloat(nil, x))}
	}
	return jsontext.AppendRubyFloat(nil, x), nil
}
