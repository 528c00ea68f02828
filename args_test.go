package resqued_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// args makes arguments of JSON texts.
func args(texts ...string) resqued.Args {
	var a resqued.Args
	for _, text := range texts {
		a = append(a, json.RawMessage(text))
	}
	return a
}

type mail struct {
	User    int64
	Subject string
	note    string // takes no argument
	Copies  []string
}

type report struct {
	Name  string
	Year  *int  `resqued:"optional"`
	Draft bool  `resqued:"optional"`
	Extra []any `resqued:"optional"`
}

// late is optional in front of a field that is not.
type late struct {
	A int `resqued:"optional"`
	B int
}

func TestArgsDecode(t *testing.T) {
	t.Parallel()

	t.Run("the fields of a struct take the arguments in order", func(t *testing.T) {
		t.Parallel()
		m := mail{note: "kept"}
		require.NoError(t, args(`42`, `"hi <b>"`, `["a","b"]`).Decode(&m))
		require.Equal(t, mail{User: 42, Subject: "hi <b>", note: "kept", Copies: []string{"a", "b"}}, m)
	})
	t.Run("a pointer to a struct is made", func(t *testing.T) {
		t.Parallel()
		var m *mail
		require.NoError(t, args(`1`, `""`, `null`).Decode(&m))
		require.Equal(t, &mail{User: 1}, m)
	})
	t.Run("optional fields may go without", func(t *testing.T) {
		t.Parallel()
		r := report{Draft: true}
		require.NoError(t, args(`"a"`).Decode(&r))
		require.Equal(t, report{Name: "a", Draft: true}, r)
		require.NoError(t, args(`"a"`, `2026`, `false`, `[1.5]`).Decode(&r))
		require.Equal(t, 2026, *r.Year)
		require.Equal(t, []any{json.Number("1.5")}, r.Extra)
	})
	t.Run("a struct without fields takes no argument", func(t *testing.T) {
		t.Parallel()
		var none struct{}
		require.NoError(t, args().Decode(&none))
		require.EqualError(t, args(`1`).Decode(&none), "got 1 argument, takes 0")
	})
	t.Run("any other type takes one", func(t *testing.T) {
		t.Parallel()
		var n int64
		require.NoError(t, args(`9007199254740993`).Decode(&n))
		require.EqualValues(t, 9007199254740993, n)
		var m map[string]int
		require.NoError(t, args(`{"a":1}`).Decode(&m))
		require.Equal(t, map[string]int{"a": 1}, m)
		var raw json.RawMessage
		require.NoError(t, args(`{"a" : 1e400}`).Decode(&raw))
		require.Equal(t, `{"a" : 1e400}`, string(raw))
		var list []int
		require.NoError(t, args(`[1,2]`).Decode(&list))
		require.Equal(t, []int{1, 2}, list)
		require.EqualError(t, args(`1`, `2`).Decode(&list), "got 2 arguments, takes 1")
		require.EqualError(t, args().Decode(&list), "got 0 arguments, takes 1")
	})
	t.Run("a struct that decodes itself takes one", func(t *testing.T) {
		t.Parallel()
		var at time.Time
		require.NoError(t, args(`"2026-11-20T14:56:21Z"`).Decode(&at))
		require.Equal(t, 2026, at.Year())
	})
	t.Run("raw arguments are all of them", func(t *testing.T) {
		t.Parallel()
		a := args(`1`, `{}`)
		var all resqued.Args
		require.NoError(t, a.Decode(&all))
		require.Equal(t, a, all)
		var raw []json.RawMessage
		require.NoError(t, a.Decode(&raw))
		require.Equal(t, []json.RawMessage(a), raw)
	})
	t.Run("no digit of a number is lost", func(t *testing.T) {
		t.Parallel()
		var v any
		require.NoError(t, args(`{"id":12345678901234567}`).Decode(&v))
		require.Equal(t, map[string]any{"id": json.Number("12345678901234567")}, v)
		var n int64
		require.NoError(t, args("9223372036854775807").Decode(&n))
		require.EqualValues(t, math.MaxInt64, n)
	})
}

func TestArgsDecodeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args resqued.Args
		dst  any
		want string
	}{
		{"too few arguments", args(`1`), &mail{}, "got 1 argument, takes 3 (User, Subject, Copies)"},
		{"too many arguments", args(`1`, `""`, `[]`, `4`), &mail{}, "got 4 arguments, takes 3 (User, Subject, Copies)"},
		{"fewer than are required", args(), &report{}, "got 0 arguments, takes 1 to 4 (Name, Year, Draft, Extra)"},
		{"an optional field in front of a required one", args(`1`), &late{}, "got 1 argument, takes 2 (A, B)"},
		{"a number beyond the field", args(`9223372036854775808`, `""`, `[]`), &mail{}, "args[0] (User): 9223372036854775808 does not fit into int64"},
		{"a fraction for an integer", args(`1.5`, `""`, `[]`), &mail{}, "args[0] (User): 1.5 does not fit into int64"},
		{"a number for a text", args(`1`, `2`, `[]`), &mail{}, "args[1] (Subject): 2 does not fit into string"},
		{"a text within a list", args(`1`, `""`, `[3]`), &mail{}, "args[2] (Copies): [3] does not fit into string"},
		{"a number beyond any float", args(`1e400`), new(float64), "args[0]: 1e400 does not fit into float64"},
		{"a small integer", args(`300`), new(int8), "args[0]: 300 does not fit into int8"},
		{"a long value is cut between characters", args(`"` + longText + `"`), new(int), `args[0]: "` + longText[:58] + `… does not fit into int`},
		{"two values in one", args(`{} {}`), new(any), "args[0]: {} {}: more than one JSON value"},
		{"no pointer", args(`1`), mail{}, "resqued: Decode needs a pointer to store arguments in, not a resqued_test.mail"},
		{"a nil pointer", args(`1`), (*mail)(nil), "resqued: Decode needs a pointer to store arguments in, not a *resqued_test.mail"},
		{"nothing", args(`1`), nil, "resqued: Decode needs a pointer to store arguments in, not a <nil>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, tt.args.Decode(tt.dst), tt.want)
		})
	}
}

// longText has a two-byte character across its sixtieth byte.
const longText = "xxéééééééééééééééééééééééééééééééééééééééééééééééééé"

func TestArgsGet(t *testing.T) {
	t.Parallel()
	a := args(`1`, `"x"`)
	var s string
	require.NoError(t, a.Get(1, &s))
	require.Equal(t, "x", s)
	require.EqualError(t, a.Get(2, &s), "args[2]: there is no such argument, got 2 arguments")
	require.EqualError(t, a.Get(-1, &s), "args[-1]: there is no such argument, got 2 arguments")
	require.EqualError(t, a.Get(0, &s), "args[0]: 1 does not fit into string")
	require.EqualError(t, a.Get(0, s), "resqued: Get needs a pointer to store an argument in, not a string")

	// A struct is one argument here, not a row of them.
	var point struct{ X, Y int }
	require.NoError(t, args(`{"x":1,"y":2}`).Get(0, &point))
	require.Equal(t, 2, point.Y)
}

func TestArgsString(t *testing.T) {
	t.Parallel()
	require.Equal(t, `[1,"x",{"a" : []},null]`, append(args(`1`, `"x"`, `{"a" : []}`), nil).String())
	require.Equal(t, `[]`, resqued.Args(nil).String())
}
