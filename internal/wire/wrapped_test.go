package wire

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// activeJob returns a payload of testdata/activejob, as Rails has written it.
func activeJob(t testing.TB, name string) []byte {
	t.Helper()
	payload, err := os.ReadFile("testdata/activejob/" + name + ".json")
	require.NoError(t, err)
	return payload
}

const adapter = "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper"

func TestActiveJob(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		class, args, id string
		wrappers        []string
		at              string
	}{
		"rails6": {
			"Import", `[42,"a/ü",{"_aj_globalid":"gid://shop/User/7"},{"force":true,"_aj_ruby2_keywords":["force"]}]`, "a9f852d1-32a2-4d03-b71b-c84e90541b8f",
			[]string{adapter},
			"2026-11-27T08:57:52Z",
		},
		// It was due after it was enqueued.
		"rails8": {"Import", `[1]`, "1cf0d4a2-7a4e-4a55-8c6e-5f3b0d1a9b11", []string{adapter}, "2026-11-27T09:57:52Z"},
		"mail": {
			"UserMailer#welcome", `["UserMailer","welcome","deliver_now",{"args":[{"_aj_globalid":"gid://shop/User/7"}],"_aj_ruby2_keywords":["args"]}]`,
			"0f0e7a53-0c5c-4d0b-8c5a-3c3f1f1f6a10",
			[]string{"ActionMailer::MailDeliveryJob", adapter},
			"2026-11-27T08:57:52.123456789Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := Parse(activeJob(t, name), 0)
			require.NoError(t, err)
			require.Equal(t, want.class, e.Class)
			require.Equal(t, want.args, e.Args.String())
			require.Equal(t, want.id, e.ID)
			require.Equal(t, want.wrappers, e.Wrappers)
			require.Equal(t, want.at, e.EnqueuedAt.Format(time.RFC3339Nano))
			require.True(t, e.Is(adapter))
			class, args := e.As(adapter)
			require.Equal(t, adapter, class)
			require.Len(t, args, 1)
		})
	}
	// Times of other versions.
	for raw, want := range map[string]string{
		`"enqueued_at":1764233872.5`: "2025-11-27T08:57:52.5Z", `"enqueued_at":null`: "0001-01-01T00:00:00Z", `"enqueued_at":"x"`: "0001-01-01T00:00:00Z",
		`"enqueued_at":"2025-11-27T09:57:52+01:00"`: "2025-11-27T08:57:52Z",
	} {
		e, err := Parse([]byte(`{"class":"`+adapter+`","args":[{"job_class":"A","arguments":[],`+raw+`}]}`), 0)
		require.NoError(t, err)
		require.Equal(t, want, e.EnqueuedAt.UTC().Format(time.RFC3339Nano), raw)
	}
}

// A payload that only calls itself a wrapper keeps its class.
func TestNoActiveJob(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"class":"JobWrapper","args":[{"job_class":"A","arguments":[]}]}`, `{"class":"X::JobWrapper"}`, `{"class":"X::JobWrapper","args":["A"]}`,
		`{"class":"X::JobWrapper","args":[{"job_class":"A","arguments":[]},1]}`, `{"class":"X::JobWrapper","args":[{"job_class":1,"arguments":[]}]}`,
		`{"class":"X::JobWrapper","args":[{"job_class":"A"}]}`, `{"class":"X::JobWrapper","args":[{"job_class":"A","arguments":{}}]}`,
		`{"class":"X::JobWrapper","args":[{"job_class":"","arguments":[]}]}`, `{"class":"X::JobWrapper","args":[{}]}`,
	} {
		e, err := Parse([]byte(payload), 0)
		require.NoError(t, err, payload)
		require.True(t, strings.HasSuffix(e.Class, "JobWrapper"), payload)
		require.Empty(t, e.Wrapper(), payload)
	}
}

// Settings of a wrapper count where the class has none.
func TestWrappersInLists(t *testing.T) {
	t.Parallel()
	mail := []string{"UserMailer#welcome", "ActionMailer::MailDeliveryJob", adapter}
	for list, want := range map[string]bool{
		"UserMailer#welcome": true, "ActionMailer::MailDeliveryJob": true, adapter: true, "Import": false, "UserMailer#*": true, "*": true,
		"!UserMailer#welcome " + adapter: false, "ActiveJob::*": true, "!UserMailer#* *": false, "!ActionMailer::MailDeliveryJob *": false,
	} {
		require.Equal(t, want, ClassIn(strings.Fields(list), mail...), list)
	}
	require.True(t, Performs([]string{"*"}, mail...))
	require.False(t, Performs([]string{"*", "!ActiveJob::*"}, mail...))
	require.True(t, Performs([]string{adapter}, mail...))
}

func TestClassOfAWrapper(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Import", ClassOf(&resqued.Class{Name: adapter}, "Import"), "a wrapper stands for many")
}

func TestShortArgs(t *testing.T) {
	t.Parallel()
	require.Equal(t, `[1,User/42,{"a":Shop::Cart/7}]`, ShortArgs(`[1,{"_aj_globalid":"gid://shop/User/42"},{"a":{"_aj_globalid":"gid://shop/Shop::Cart/7"}}]`))
}
