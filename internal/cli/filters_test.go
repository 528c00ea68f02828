package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
	"github.com/resqued/resqued/internal/wire"
)

// surface is where jobs of a kind are found and changed.
type surface struct {
	kind filter.Kind
	// list and remove are verbs with their flags, api and acts paths of the API, page a page.
	list, remove    []string
	api, acts, page string
	// id is the name of a job's own in lists, tick what has it on the page.
	id   string
	tick *regexp.Regexp
}

type surfaces struct {
	*webtest.Fixture
	url string
}

// newSurfaces puts 40 jobs of each kind into Redis, less than a page.
func newSurfaces(t *testing.T) *surfaces {
	server := redistest.Shared(t)
	f := &surfaces{webtest.SetupOn(t, server), server.URL()}
	now := time.Now().Truncate(time.Second)
	f.Do("SADD", "queues", "mail")
	for i := range 40 {
		class := []string{"Mail::Welcome", "Mail::Bye", "Import", "a,b"}[i%4]
		at := now.Add(time.Duration(i) * -20 * time.Minute)
		payload := fmt.Sprintf(`{"class":%q, "args":[%d, {"customer": %d, "tags": ["t%d"]}], "enqueued_at": %d}`, class, i, i%5, i%3, at.Unix())
		if i%7 == 0 {
			payload = fmt.Sprintf(`{"class":"ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper","args":[{"job_class":%q,"job_id":"id-%d","arguments":[{"_aj_globalid":"gid://shop/User/%d"}]}]}`, class, i, i%2)
		}
		failure := wire.Failure{
			FailedAt: at, Payload: []byte(payload), Exception: []string{"Timeout", "Net::Timeout", "KeyError"}[i%3], Error: fmt.Sprintf("try %d of %d", i, i%2),
			Worker: fmt.Sprintf("web%d:%d:mail", i%3, 100+i), Queue: []string{"mail", "reports", "x[y]"}[i%3],
		}
		if i%6 == 0 {
			failure.RetriedAt = "2026/11/28 10:00:00"
		}
		f.Do("RPUSH", "failed", failure.Encode())
		f.Do("RPUSH", "queue:mail", payload)
		due := now.Add(time.Duration(i+1) * 20 * time.Minute).Unix()
		f.Do("ZADD", "delayed_queue_schedule", due, due)
		f.Do("RPUSH", fmt.Sprintf("delayed:%d", due), fmt.Sprintf(`%s, "queue":%q}`, strings.TrimSuffix(payload, "}"), failure.Queue))
	}
	return f
}

func conditionsToTry() map[string][]string {
	return map[string][]string{
		"class": {"Mail::*", "Mail::*,!Mail::Bye", "Import", `a\,b`, "*JobWrapper", "nobody", "?mport,Mail::Bye"}, "queue": {"mail", "mail,reports", `x\[y]`, "*,!mail", "none"},
		"worker": {"web1", "web1:101", "web"}, "error": {"Timeout", "try 1", "/^Net|Key/", "/of 1$/"}, "arg": {"1.customer=3", "0=4", "**.customer=1", "0=User/1", "*.tags.*=t2", `1.customer="3"`},
		"args": {`[2,{"tags":["t2"],"customer":2}]`, "[]"}, "match": {`"customer":[12]`, `t0`, "^\\[1", "User"}, "since": {"3h", "1h30m", "yesterday", "+2h"}, "until": {"2h", "5h20m", "tomorrow"},
		"retried": {"yes", "no", "any"},
	}
}

// TestOneFilter: a list, an act on all that it shows, the API's, the page's and the shell's, with random
// conditions, are about the same jobs.
func TestOneFilter(t *testing.T) {
	t.Parallel()
	f := newSurfaces(t)
	kinds := []surface{
		{filter.Failures, []string{"failed", "--flat"}, []string{"failed", "rm"}, "/failed", "/failed/remove", "/failed?view=flat", "id", regexp.MustCompile(`name="id" value="([^"]+)"`)},
		{filter.Waiting, []string{"jobs", "find", "--queue", "mail"}, []string{"jobs", "rm", "--queue", "mail"}, "/queues/mail/jobs", "/queues/mail/jobs/remove", "/queues/mail?", "position", regexp.MustCompile(`class="n place">(\d+)<`)},
		{filter.Delayed, []string{"schedule"}, []string{"schedule", "rm"}, "/schedule/delayed", "/schedule/delayed/remove", "/schedule?", "name", regexp.MustCompile(`name="id" value="([^"]+)"`)},
	}
	random, some, conditions := rand.New(rand.NewPCG(46, 1)), 0, conditionsToTry()
	for i := range 200 {
		k := kinds[i%len(kinds)]
		words := url.Values{}
		known := filter.Words(k.kind)
		for range 1 + random.IntN(2) {
			w := known[random.IntN(len(known))]
			if values := conditions[w.Name]; values != nil && (w.Name != "queue" || k.kind != filter.Waiting) {
				words.Set(w.Name, values[random.IntN(len(values))])
			}
		}
		if len(words) == 0 || words.Get("retried") == "any" && len(words) == 1 {
			continue
		}
		found := f.found(k, words)
		if len(found) > 0 && len(found) < 40 {
			some++
		}
		if i%20 == 0 && len(found) < 20 { // now really: what was not listed stays
			all := f.found(k, url.Values{"match": {""}})
			f.act(k, words, false, len(found))
			left := f.found(k, url.Values{"match": {""}})
			require.Len(t, left, len(all)-len(found), "%v", words)
			if k.kind == filter.Delayed {
				require.ElementsMatch(t, slices.DeleteFunc(all, func(id string) bool { return slices.Contains(found, id) }), left, "%v", words)
			}
		}
	}
	require.Greater(t, some, 70, "most filters select some jobs")
}

// found returns the ids that each surface lists, having compared them and the numbers of their acts.
func (f *surfaces) found(k surface, words url.Values) []string {
	f.Helper()
	named := func(body []byte) (ids []string) {
		var list struct{ Items []map[string]any }
		require.NoError(f, json.Unmarshal(body, &list), "%s", body)
		for _, item := range list.Items {
			ids = append(ids, fmt.Sprint(item[k.id]))
		}
		return ids
	}
	listed := named(f.shell(append(slices.Clone(k.list), append(flagsOf(words), "-o", "json")...)...))
	api := f.Ask(http.MethodGet, "/api/v1"+k.api+"?limit=1000&"+words.Encode(), "")
	require.Equal(f, http.StatusOK, api.Code, "%v: %s", words, api.Body)
	require.ElementsMatch(f, listed, named(api.Body.Bytes()), "shell and API, %v", words)
	page := f.Ask(http.MethodGet, k.page+"&"+words.Encode(), "").Body.String()
	ticks := []string{}
	for _, m := range k.tick.FindAllStringSubmatch(page, -1) {
		ticks = append(ticks, m[1])
	}
	require.ElementsMatch(f, listed, ticks, "shell and page, %v", words)
	if words.Get("match") != "" || len(words) > 1 || words["match"] == nil {
		f.act(k, words, true, len(listed))
	}
	return listed
}

// act counts, or removes, what the words select: by the shell, the API and the page's form.
func (f *surfaces) act(k surface, words url.Values, dry bool, want int) {
	f.Helper()
	given := map[string]any{}
	for name, v := range words {
		given[name] = v[0]
	}
	body, err := json.Marshal(map[string]any{"filter": given, "dry_run": dry})
	require.NoError(f, err)
	var did struct{ Count int }
	answer := f.Ask(http.MethodPost, "/api/v1"+k.acts, string(body))
	require.NoError(f, json.Unmarshal(answer.Body.Bytes(), &did), "%s", answer.Body)
	require.Equal(f, want, did.Count, "%v: %s", words, answer.Body)
	if !dry {
		return
	}
	form := f.Ask(http.MethodPost, k.page+"&"+words.Encode(), "act=remove-all", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") })
	asked := regexp.MustCompile(`Remove (\d+) `).FindStringSubmatch(form.Body.String())
	if want == 0 {
		require.Equal(f, http.StatusSeeOther, form.Code, "%v", words)
	} else {
		require.NotNil(f, asked, "%v: %s", words, form.Body)
		require.Equal(f, strconv.Itoa(want), asked[1], "%v", words)
	}
	out := f.shell(append(slices.Clone(k.remove), append(flagsOf(words), "--dry-run", "-o", "json")...)...)
	var counted struct {
		Matched int
		Items   []struct{ Jobs int }
	}
	require.NoError(f, json.Unmarshal(out, &counted), "%s", out)
	for _, queue := range counted.Items {
		counted.Matched += queue.Jobs
	}
	require.Equal(f, want, counted.Matched, "%v", words)
}

func flagsOf(words url.Values) (flags []string) {
	filter.Each(words, func(word, value string) {
		if value != "" {
			flags = append(flags, "--"+word+"="+value)
		}
	})
	return flags
}

func (f *surfaces) shell(args ...string) []byte {
	f.Helper()
	var out, notes bytes.Buffer
	a := &cli{handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: &out, stderr: &notes}, args: append(args, "--redis-url", f.url, "-n", f.Namespace, "-c", "none")}
	require.Zero(f, a.run(f.Context()), "%v: %s", args, notes.String())
	return out.Bytes()
}
