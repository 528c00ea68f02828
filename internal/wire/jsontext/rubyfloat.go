package jsontext

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// Where Ruby's Float#to_s changes to exponents.
const (
	// rubyMaxPadded bounds the digits before the point if zeros pad them: 100000000000000.0, but 1.0e+15.
	rubyMaxPadded = 15
	// rubyMaxZeros bounds the zeros after the point: 0.0001, but 1.0e-05.
	rubyMaxZeros = 3
)

// AppendRubyFloat appends Ruby's Float#to_s: the shortest digits that identify the number.
func AppendRubyFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if math.Signbit(f) {
		b = append(b, '-')
		f = -f
	}
	if f == 0 {
		return append(b, "0.0"...)
	}
	// d.ddde±xx
	mantissa, exponent, _ := bytes.Cut(strconv.AppendFloat(nil, f, 'e', -1, 64), []byte("e"))
	digits := append([]byte{mantissa[0]}, bytes.TrimPrefix(mantissa[1:], []byte("."))...)
	exp, _ := strconv.Atoi(string(exponent))
	point := exp + 1 // digits before the point
	switch {
	case point > 0 && point < len(digits):
		b = append(append(b, digits[:point]...), '.')
		return append(b, digits[point:]...)
	case point > 0 && point <= rubyMaxPadded:
		b = append(b, digits...)
		b = append(b, bytes.Repeat([]byte("0"), point-len(digits))...)
		return append(b, ".0"...)
	case point <= 0 && point >= -rubyMaxZeros:
		b = append(b, "0."...)
		b = append(b, bytes.Repeat([]byte("0"), -point)...)
		return append(b, digits...)
	}
	b = append(b, digits[0], '.')
	if len(digits) == 1 {
		b = append(b, '0')
	}
	b = append(b, digits[1:]...)
	return fmt.Appendf(b, "e%+03d", exp)
}
