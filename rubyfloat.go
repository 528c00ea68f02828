package resqued

import (
	"encoding/json"
	"math"
	"reflect"

	"github.com/resqued/resqued/internal/wire/jsontext"
)

// RubyFloat is a float64 that is encoded to JSON as Ruby does: 1.0 and 1.0e-05, where
// encoding/json writes 1 and 0.00001. Use it for arguments of jobs that Ruby programs enqueue
// or dequeue as well: unique queues, lock keys in Ruby's style and Ruby's dequeue compare the
// text of arguments.
//
// The text is that of Float#to_s, which Ruby's json gem writes before version 2.10; later
// versions write very large and very small numbers differently. As an argument of a handler,
// RubyFloat accepts any number.
type RubyFloat float64

// MarshalJSON returns the number as Ruby writes it. It returns an error for infinities and NaN,
// as Ruby does.
func (f RubyFloat) MarshalJSON() ([]byte, error) {
	x := float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, &json.UnsupportedValueError{Value: reflect.ValueOf(x), Str: string(jsontext.AppendRubyFloat(nil, x))}
	}
	return jsontext.AppendRubyFloat(nil, x), nil
}
