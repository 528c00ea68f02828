package jobkey

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	core, logged := observer.New(zap.ErrorLevel)
	tenants, err := NewTenants(TenantsConfig{
		Rules: map[string]Fair{
			"mail": {Key: "{{args.0}}", Weights: map[string]int{"big": 4, "*": 2}}, "deep": {Key: "{{args.0.account}}"}, "own": {Weights: map[string]int{"a": 3}},
			"both": {Key: "{{class}}"}, "far": {Key: "{{args.0}}", Weights: map[string]int{long: 7}},
		},
		Program: map[string]resqued.Fair{
			"own":  {Tenant: func(j *resqued.Job) string { return j.Queue + j.Class }, Weights: map[string]int{"b": 2}},
			"both": {Tenant: func(*resqued.Job) string { return "never" }, Weights: map[string]int{"c": 5}},
			"*":    {Tenant: func(j *resqued.Job) string { return string(j.Args[0]) }},
		},
		Log: zap.New(core),
	})
	require.NoError(t, err)
	for _, tc := range []struct{ queue, payload, want string }{
		{"mail", `{"class":"A","args":["acme",1]}`, "acme"},
		{"mail", `{"class":"A","args":[7]}`, "7"},
		{"mail", `{"class":"A","args":[]}`, ""},
		{"mail", `{"class":"A","args":["\u00e9"]}`, "é"},
		{"mail", `nonsense`, ""},
		{"mail", `{"class":"A","args":["` + long + `"]}`, long[:200] + ":" + checksum([]byte(long))},
		{"deep", `{"class":"A","args":[{"account":"x"}]}`, "x"},
		{"own", `{"class":"A"}`, "ownA"},
		{"both", `{"class":"A"}`, "A"},
		{"else", `{"class":"A","args":[7]}`, "7"},
		{"else", `{"class":"A","args":[]}`, ""}, // the function panics
		{"else", `{"class":"A","args":[]}`, ""},
	} {
		require.Equal(t, tc.want, tenants.Tenant(tc.queue, []byte(tc.payload)), "%s %s", tc.queue, tc.payload)
	}
	require.Equal(t, 1, logged.Len())

	rules := tenants.Rules()
	require.Equal(t, 0, rules["mail"].Argument)
	require.Equal(t, map[string]int{"big": 4}, rules["mail"].Weights)
	require.Equal(t, 2, rules["mail"].Others)
	require.Equal(t, -1, rules["deep"].Argument)
	require.Equal(t, map[string]int{"a": 3}, rules["own"].Weights)
	require.Equal(t, map[string]int{"c": 5}, rules["both"].Weights)
	require.Equal(t, map[string]int{tenants.Tenant("mail", []byte(`{"class":"A","args":["`+long+`"]}`)): 7}, rules["far"].Weights)
	require.Equal(t, 1, rules["both"].Others)

	for want, cfg := range map[string]TenantsConfig{
		"has no key, and this program has no function": {Rules: map[string]Fair{"q": {Weights: map[string]int{"a": 1}}}},
		"must be 1 to 1000":                            {Program: map[string]resqued.Fair{"q": {Tenant: func(*resqued.Job) string { return "" }, Weights: map[string]int{"a": 1001}}}},
		"refers to nothing":                            {Rules: map[string]Fair{"q": {Key: "acme"}}},
	} {
		_, err := NewTenants(cfg)
		require.ErrorContains(t, err, want)
	}
	none, err := NewTenants(TenantsConfig{})
	require.NoError(t, err)
	require.Empty(t, none.Tenant("q", []byte(`{"class":"A","args":[7]}`)))
}

func TestFairAsJSON(t *testing.T) {
	t.Parallel()
	var rules map[string]Fair
	require.NoError(t, json.Unmarshal([]byte(`{"a":"{{args.0}}","b":{"key":"{{class}}","weights":{"x":2}}}`), &rules))
	require.Equal(t, map[string]Fair{"a": {Key: "{{args.0}}"}, "b": {Key: "{{class}}", Weights: map[string]int{"x": 2}}}, rules)
	require.Error(t, json.Unmarshal([]byte(`{"a":{"kye":"{{args.0}}"}}`), &rules))
}
