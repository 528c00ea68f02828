package jobkey

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/wire"
)

func TestFill(t *testing.T) {
	t.Parallel()
	const payload = `{"class":"My::Job", "args":[42, "a b", {"user": {"id": 7, "a.b": 1}, "7": "x", "id": 1, "id": 2}, ` +
		`[ 1, [true, null], "\u00e9\n" ], 1.50, "", "\u0000"]}`
	for template, want := range map[string]string{
		"{{class}}":                     "My::Job",
		"{{ queue }}":                   "mail",
		"{{class}}:{{args.0}}":          "My::Job:42",
		"{{args.1}}{{args.1}}":          "a ba b",
		"x {args} {{args.2.user.id}}":   "x {args} 7",
		"{{args.2.user}}":               `{"id":7,"a.b":1}`,
		"{{args.2.id}}":                 "2",
		"{{args.2.7}}":                  "x",
		"{{args.2.user.a.b}}|":          "|",
		"{{args.3}}":                    `[1,[true,null],"é\n"]`,
		"{{args.3.1.0}}":                "true",
		"{{args.3.1.1}}":                "null",
		"{{args.3.2}}":                  "é\n",
		"{{args.3.00}}|{{args.3.-1}}|":  "||",
		"{{args.3.x}}|{{args.3.9999}}|": "||",
		"{{args.0.x}}|{{args.1.0}}|":    "||",
		"{{args.4}}":                    "1.50",
		"{{args.5}}|":                   "|",
		"{{args.6}}":                    "\x00",
		"{{args.7}}|{{args.9999.a}}|":   "||",
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, fill(t, template, payload))
		})
	}

	t.Run("jobs of ActiveJob are equal whatever their job_id", func(t *testing.T) {
		t.Parallel()
		job := func(id string) string {
			return `{"class":"ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper","args":[{"job_class":"MailJob","job_id":"` + id +
				`","provider_job_id":null,"queue_name":"mail","priority":null,"arguments":[42,{"_aj_globalid":"gid://app/User/7"}],"executions":0,` +
				`"exception_executions":{},"locale":"en","timezone":"UTC","enqueued_at":"2026-11-23T10:00:00Z"}]}`
		}
		for _, id := range []string{"6f0c…1", "6f0c…2"} {
			require.Equal(t, `MailJob:[42,{"_aj_globalid":"gid://app/User/7"}]`, fill(t, "{{args.0.job_class}}:{{args.0.arguments}}", job(id)))
		}
	})

	t.Run("an argument that a job of ActiveJob does not have is not its whole payload", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "A::B||7", fill(t, "{{class}}|{{args.0}}|{{args.0.job_id}}", activeJob(`"arguments":[]`)))
	})

	t.Run("all arguments are as they were pushed, without white space", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, `[42,"a b",{"user":{"id":7,"a.b":1},"7":"x","id":1,"id":2},[1,[true,null],"é\n"],1.50,"","\u0000"]`,
			fill(t, "{{args}}", payload))
		require.Equal(t, "[]", fill(t, "{{args}}", `{"class":"A"}`))
		require.Equal(t, `["<&>"]`, fill(t, "{{args}}", `{"class":"A","args":["<&>"]}`))
	})
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"":                        "refers to nothing, so all jobs would have one key; write {{class}}; " + known,
		"class":                   "refers to nothing, so all jobs would have one key; write {{class}}; " + known,
		"é{{class":                "at character 2: {{ without }} after it",
		"{{class}}}}":             "at character 10: }} without {{ before it",
		"{{class}} {{}}":          "at character 11: {{}} is empty; " + known,
		"{{Class}}":               "at character 1: {{Class}} is unknown; " + known,
		"{{args0}}":               "at character 1: {{args0}} is unknown; " + known,
		"{{args.}}":               "at character 1: {{args.}}: after args. stands the number of an argument, 0 to 9999; " + known,
		"{{args.id}}":             "at character 1: {{args.id}}: after args. stands the number of an argument, 0 to 9999; " + known,
		"{{args.10000}}":          "at character 1: {{args.10000}}: after args. stands the number of an argument, 0 to 9999; " + known,
		"{{args.+1}}":             "at character 1: {{args.+1}}: after args. stands the number of an argument, 0 to 9999; " + known,
		"{{args.0..a}}":           "at character 1: {{args.0..a}}: nothing stands between or after the dots; " + known,
		"{{args.0.}}":             "at character 1: {{args.0.}}: nothing stands between or after the dots; " + known,
		"{{a\x1b}}":               `at character 1: {{a\x1b}} is unknown; ` + known,
		strings.Repeat("é", 1000): "is 2000 bytes long; at most 1024",
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			_, err := ParseTemplate(template)
			require.EqualError(t, err, want)
		})
	}
}

func TestTemplateProperties(t *testing.T) {
	t.Parallel()
	t.Run("text around references stays as it is", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			fixed := rapid.StringMatching(`[^{}]{0,20}`)
			before, between, after := fixed.Draw(t, "before"), fixed.Draw(t, "between"), fixed.Draw(t, "after")
			parsed, err := ParseTemplate(before + "{{class}}" + between + "{{queue}}" + after)
			require.NoError(t, err)
			require.Equal(t, before+"C"+between+"Q"+after, parsed.Fill("Q", wire.Envelope{Class: "C"}))
		})
	})
	t.Run("a text is put in as it is", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.String().Draw(t, "text")
			payload, err := wire.EncodePayload("A", []any{map[string]any{"k": text}, text})
			require.NoError(t, err)
			e, err := wire.Parse(payload, 0)
			require.NoError(t, err)
			parsed, err := ParseTemplate("{{args.0.k}}/{{args.1}}")
			require.NoError(t, err)
			require.Equal(t, text+"/"+text, parsed.Fill("", e))
		})
	})
}

func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{{class}}:{{args.0}}", "{{", "}}", "{{}}", "{{{class}}}", "{{args.1.a.b.2}}x{{queue}}", "{{ args }}", "{{args.0.\x00}}", "\xff{{class}}",
	} {
		f.Add(seed, `[1,{"a":[{"b":2}]},"x"]`)
	}
	f.Fuzz(func(t *testing.T, template, args string) {
		parsed, err := ParseTemplate(template)
		if err != nil {
			require.NotEmpty(t, err.Error())
			require.Nil(t, parsed)
			return
		}
		require.True(t, IsTemplate(template))
		e, err := wire.Parse([]byte(`{"class":"A","args":`+args+`}`), 0)
		if err != nil {
			return
		}
		require.Equal(t, parsed.Fill("q", e), parsed.Fill("q", e))
	})
}

func fill(t *testing.T, template, payload string) string {
	t.Helper()
	parsed, err := ParseTemplate(template)
	require.NoError(t, err)
	e, err := wire.Parse([]byte(payload), 0)
	require.NoError(t, err)
	return parsed.Fill("mail", e)
}
