//go:build unix

package longjob

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestReports(t *testing.T) {
	t.Parallel()
	value := func(s string) *string { return &s }
	n := func(n int64) *int64 { return &n }
	for line, want := range map[string]report{
		`{}`: {},
		`{"state":{"page":41,"big":12345678901234567890.10,"o":{ "a" : [1,  2] },"gone":null}}`: {set: map[string]*string{
			"s:page": value("41"), "s:big": value("12345678901234567890.10"), "s:o": value(`{ "a" : [1,  2] }`), "s:gone": nil,
		}, units: 1},
		`{"state":{}}`:                      {set: map[string]*string{}, units: 1},
		`{"state":{},"units":0}`:            {set: map[string]*string{}},
		`{"units":12}`:                      {units: 12},
		`{"units":"12"}`:                    {odd: `"units" is not a count`},
		` {"yield" : true , "done":false} `: {yield: true},
		`{"done":true}`:                     {done: true},
		`{"progress":{"done":3,"total":9.0,"step":"copy","message":"to \u00e9"}}`: {shown: &shown{
			done: n(3), total: n(9), step: value("copy"), message: value("to é"),
		}},
		`{"progress":{"done":1e3,"total":null}}`:       {shown: &shown{done: n(1000)}},
		`{"progress":{"done":-1}}`:                     {shown: &shown{}, odd: `"done" of "progress" is not a count`},
		`{"progress":{"done":"3","message":"m"}}`:      {shown: &shown{message: value("m")}, odd: `"done" of "progress" is not a count`},
		`{"progress":{"message":3}}`:                   {shown: &shown{}, odd: `"message" of "progress" is not text`},
		`{"progress":3}`:                               {odd: `"progress": it is not a JSON object`},
		`{"progress":null,"state":{"a":1}}`:            {set: map[string]*string{"s:a": value("1")}, units: 1, odd: `"progress": it is not a JSON object`},
		`{"refresh_lock":true,"state":{"a":"\ud800"}}`: {set: map[string]*string{"s:a": value(`"\ud800"`)}, units: 1, odd: `"refresh_lock" is not known; there are state, progress, yield, done, lock, unlock, units`},
	} {
		got, err := parseReport([]byte(line))
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
	for line, want := range map[string]string{
		`hello`:                   "it is not a JSON object",
		``:                        "it is not a JSON object",
		`null`:                    "it is not a JSON object",
		`[{"yield":true}]`:        "it is not a JSON object",
		`{"yield":true`:           "it is not a JSON object: unexpected end of JSON input",
		`{"yield":true} x`:        "it is not a JSON object: invalid character 'x' after top-level value",
		`{"yield":1}`:             `"yield" is neither true nor false`,
		`{"done":"true"}`:         `"done" is neither true nor false`,
		`{"done":null}`:           `"done" is neither true nor false`,
		`{"state":[1]}`:           `"state": it is not a JSON object`,
		`{"state":null}`:          `"state": it is not a JSON object`,
		"{\"state\":{\"\xff\":1}": "it is not UTF-8",
	} {
		_, err := parseReport([]byte(line))
		require.EqualError(t, err, want, line)
	}
}

// Anything that a command writes is refused, or understood as JSON.
func FuzzReport(f *testing.F) {
	for _, seed := range []string{
		`{"state":{"page":41,"gone":null}}`, `{"progress":{"done":3,"total":9,"message":"m","step":"s"}}`, `{"yield":true}`, `{"done":true}`,
		`{"state":{"a":{"b":[1,2,{"c":null}]}},"x":1}`, `null`, `{}`, `{"state":`, "\x00\xff", `{"state":{"a":1,"a":2}}`, `{"progress":{"done":1e400}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseReport(line)
		if err != nil {
			require.Zero(t, r, "nothing is taken from a line that is refused")
			return
		}
		require.True(t, utf8.Valid(line))
		top := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(line, &top))
		if raw, ok := top["state"]; ok {
			state := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal(raw, &state))
			require.Len(t, r.set, len(state))
			for key, value := range state {
				kept, ok := r.set[stateOwn+key]
				require.True(t, ok)
				if kept == nil {
					require.Equal(t, "null", string(value))
					continue
				}
				require.Equal(t, string(value), *kept, "byte for byte")
			}
		}
		require.Equal(t, string(top["yield"]) == "true", r.yield)
		require.Equal(t, string(top["done"]) == "true", r.done)
		if r.shown != nil {
			for _, count := range []*int64{r.shown.done, r.shown.total} {
				require.True(t, count == nil || *count >= 0)
			}
		}
	})
}
