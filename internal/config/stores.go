package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/selector"
)

const (
	// StoreFlag is the flag that selects one of several stores.
	StoreFlag = "store"
	// StoreVariable is the corresponding variable.
	StoreVariable = "RESQUED_STORE"
	// maxStores limits the stores of a file: a dashboard keeps all of them open.
	maxStores = 64
)

// storeFields are the keys that a store may set, and "routes", as documented.
var storeFields = []string{
	"redis_url", "redis_password_file", "redis_ca_file", "redis_cert_file", "redis_key_file", "allow_eviction", "namespace", "queues", "routes",
	"worker_count", "thread_count", "jobs_per_fork", "max_rss", "max_age", "max_retiring", "interval", "waker", "statsd_key",
}

// storeName matches names of stores, for tables, prefixes of ids, and socket paths.
var storeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`) })

// Route says which queues belong to a store.
type Route struct {
	Store string `json:"store"`
	// Queues are names, globs and "!" exclusions.
	Queues []string `json:"queues"`
}

// RouteOf returns the store of a queue by the first matching route, or "".
func RouteOf(routes []Route, queue string) string {
	for _, r := range routes {
		if selector.MatchAny(r.Queues, queue) {
			return r.Store
		}
	}
	return ""
}

// fileStore is an entry of the stores section: a file with the keys that it sets.
type fileStore struct {
	*file
	name   string
	routes []string
	// routed: it says which queues are its own, rightly or wrongly.
	routed bool
}

func (f *file) readStores(section field) {
	all := f.entriesOf(section, "must be a map of names to stores: main: {redis_url: redis://a:6379/0, queues: [mail]}")
	if len(all) > maxStores {
		f.refuse("stores", "", section.line, fmt.Sprintf("has %d stores; %d are supported", len(all), maxStores))
		return
	}
	for _, one := range all {
		f.stores = append(f.stores, f.readStore(one))
	}
}

func (f *file) readStore(from field) *fileStore {
	at := "stores." + from.name
	s := &fileStore{name: from.name, file: &file{path: f.path, values: map[string]any{}, lines: map[string]int{}, entries: map[string][]int{}}}
	if !storeName().MatchString(from.name) {
		f.refuse(at, "", from.line, `the name of a store is small letters, digits, "_" and "-", begins with a letter, and has 32 characters at most`)
	}
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, "must be a map: {redis_url: redis://a:6379/0, queues: [mail]}")
		return s
	}
	for _, one := range f.fields(from.value, at+".") {
		named := field{name: at + "." + one.name, line: one.line, value: one.value}
		i := slices.IndexFunc(keys(), func(k key) bool { return k.name == one.name })
		switch {
		case one.name == "routes":
			s.routed = true
			s.routes = f.readRoutes(named)
		case i >= 0 && slices.Contains(storeFields, one.name):
			s.readValue(keys()[i], named)
		case i >= 0, slices.Contains([]string{"handlers", "runners", "schedule", "stores"}, one.name):
			f.refuse(named.name, "", one.line, "holds for all stores: write it outside of stores")
		default:
			f.refuse(named.name, "", one.line, unknown(nearest(one.name, storeFields)))
		}
	}
	f.errs = append(f.errs, s.errs...)
	_, works := s.values["queues"]
	if !works && !s.routed && len(s.errs) == 0 {
		f.refuse(at, "", from.line, "has no queues; write queues: [mail], or routes: [mail] if other daemons work them")
	}
	return s
}

func (f *file) readRoutes(from field) []string {
	var list []string
	lines := []int{}
	if from.value.Kind == yaml.SequenceNode {
		var ok bool
		if list, lines, ok = f.list(from.name, from.value); !ok {
			return nil
		}
	} else {
		text, err := scalar(from.value)
		if err != nil {
			f.refuse(from.name, "", from.line, err.Error())
			return nil
		}
		list = entries(text)
	}
	if len(list) == 0 {
		f.refuse(from.name, "", from.line, "names no queues; leave it out, and those of queues are meant")
		return nil
	}
	err := selector.CheckSet(list)
	if err == nil {
		return list
	}
	for _, one := range entryErrors(err) {
		f.refuse(from.name, one.Entry, one.lineIn(lines, from.line), one.Reason)
	}
	return nil
}

// routes returns which queues belong to which store, in the order of the file.
func (f *file) routes() []Route {
	var all []Route
	for _, s := range f.stores {
		r := Route{Store: s.name, Queues: s.routes}
		if !s.routed {
			// Errors in its queues are reported where they are read.
			spec, _, err := selector.Parse(entries(s.values["queues"]), 100)
			if err == nil {
				r.Queues = spec.Names()
				for _, q := range spec.Exclude {
					r.Queues = append(r.Queues, "!"+q)
				}
			}
		}
		all = append(all, r)
	}
	return all
}

// chooseStore reduces the keys to one store's; false: none is chosen, and all are loaded.
func (l *loader) chooseStore() (one bool) {
	name, from := l.options.Store, Source{Kind: FromFlag, Name: "--" + StoreFlag}
	if flags := l.options.Flags; name == "" && flags != nil {
		if flag := flags.Lookup(StoreFlag); flag != nil && flag.Changed && len(flag.Annotations[annotation]) > 0 {
			name = flag.Value.String()
		}
	}
	if name == "" && l.env[StoreVariable] != "" {
		name, from = l.env[StoreVariable], Source{Kind: FromEnv, Name: StoreVariable}
	}
	switch {
	case l.file.unreadable:
		return true
	case len(l.file.stores) == 0:
		if name != "" {
			l.errs = append(l.errs, Error{Key: StoreFlag, Value: name, Source: from, Message: "the configuration has no stores"})
		}
		return true
	case name == "" && len(l.file.stores) == 1:
		l.takeStore(l.file.stores[0])
		return true
	case name == "":
		return false
	}
	i := slices.IndexFunc(l.file.stores, func(s *fileStore) bool { return s.name == name })
	if i < 0 {
		var names []string
		for _, s := range l.file.stores {
			names = append(names, s.name)
		}
		l.errs = append(l.errs, Error{Key: StoreFlag, Value: name, Source: from, Message: "there is no such store, one of " + strings.Join(names, ", ")})
		return true
	}
	if l.service.credential != "" { // the one of resqued@NAME
		l.service.credential = filepath.Join(l.options.Search.Credstore, "resqued."+name+"."+passwordCredential)
	}
	l.takeStore(l.file.stores[i])
	return true
}

// StoreNamed returns the store that flags or environment name, for commands without configuration.
func StoreNamed(flags *pflag.FlagSet) string {
	if flag := flags.Lookup(StoreFlag); flag != nil && flag.Changed {
		return flag.Value.String()
	}
	return os.Getenv(StoreVariable)
}

// takeStore replaces the common keys by a store's own.
func (l *loader) takeStore(s *fileStore) {
	l.store = s
	l.result.Store, l.result.Routes = s.name, l.file.routes()
	if line, ok := l.file.lines["queues"]; ok {
		l.file.refuse("queues", "", line, "belongs to each store: write it below stores")
		l.errs = append(l.errs, l.file.errs[len(l.file.errs)-1])
		l.bad["queues"] = true
	}
	values, lines, places := maps.Clone(l.file.values), maps.Clone(l.file.lines), maps.Clone(l.file.entries)
	maps.Copy(values, s.values)
	maps.Copy(lines, s.lines)
	for name := range s.values {
		delete(places, name)
	}
	maps.Copy(places, s.entries)
	l.file.values, l.file.lines, l.file.entries = values, lines, places
	for _, k := range keys() {
		// With all stores, a flag would set the same value for each of them.
		if flag := ours(l.options.Flags, k); l.options.each && s.sets(k.name) && flag != nil && flag.Changed {
			l.errs = append(l.errs, Error{
				Key: k.name, Value: withoutSecret(k.name, flag.Value.String()), Source: Source{Kind: FromFlag, Name: "--" + flag.Name},
				Message: fmt.Sprintf("each store has its own (stores.%s.%s, %s:%d); name one with --%s", s.name, k.name, l.file.path, s.lines[k.name], StoreFlag),
			})
		}
	}
}

// sets reports whether a store sets a key itself.
func (s *fileStore) sets(key string) bool {
	if s == nil {
		return false
	}
	_, ok := s.values[key]
	return ok
}

func (l *loader) loadStores() (*Resolved, error) {
	var errs Errors
	for _, e := range l.errs {
		errs = errs.with(e)
	}
	var all []*Resolved
	for _, s := range l.file.stores {
		o := l.options
		o.Store, o.each = s.name, true
		if !s.sets("queues") {
			o.NeedQueues = false // other daemons work them
		}
		r, err := Load(o)
		if some, ok := errors.AsType[Errors](err); ok {
			for _, e := range some {
				errs = errs.with(e)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(errs) == 0 {
		errs = sameStore(all)
	}
	if len(errs) > 0 {
		l.errs = errs
		return nil, l.markFound()
	}
	result := *all[0]
	result.Warnings = nil
	for _, r := range all {
		for _, w := range r.Warnings {
			if !slices.Contains(result.Warnings, w) {
				result.Warnings = append(result.Warnings, w)
			}
		}
	}
	result.Warnings = append(result.Warnings, crossed(all)...)
	// Used as if it were a store's, this configuration has no server.
	result.Store, result.Stores, result.RedisURL, result.Namespace = "", all, "", ""
	return &result, nil
}

// with adds an error unless it is there.
func (e Errors) with(one Error) Errors {
	if slices.Contains(e, one) {
		return e
	}
	return append(e, one)
}

// sameStore refuses two stores with the same URL and namespace.
func sameStore(all []*Resolved) (errs Errors) {
	for i, r := range all {
		for _, other := range all[:i] {
			if placeOf(r.RedisURL) == placeOf(other.RedisURL) && r.Namespace == other.Namespace {
				key := "stores." + r.Store
				errs = append(errs, Error{Key: key, Source: r.Sources["redis_url"], Message: fmt.Sprintf(
					"has the redis_url and the namespace of store %s; one of them must be another", other.Store)})
			}
		}
	}
	return errs
}

// placeOf returns the URL of a single server without credentials and with defaults filled in.
func placeOf(text string) string {
	scheme, _, rest := splitURL(text)
	if scheme != "redis" && scheme != "rediss" || strings.ContainsAny(rest, "?#") {
		return text
	}
	host, db, _ := strings.Cut(rest, "/")
	host = strings.ToLower(host)
	if i := strings.LastIndexByte(host, ':'); i < 0 || strings.HasSuffix(host, "]") {
		host += ":6379"
	}
	if name, port, _ := strings.Cut(host, ":"); name == "localhost" {
		host = "127.0.0.1:" + port
	}
	return scheme + "://" + host + "/" + cmp.Or(strings.TrimLeft(db, "0"), "0")
}

// crossed warns of queues that a store works but that belong to another one.
func crossed(all []*Resolved) (warnings []Warning) {
	for _, r := range all {
		for _, p := range r.Queues.Patterns {
			example := exampleOf(p)
			if example == "" {
				continue
			}
			if home := RouteOf(r.Routes, example); home != r.Store && home != "" {
				warnings = append(warnings, Warning{Key: "stores", Code: "crossed", Message: fmt.Sprintf(
					"store %s works queue %s, which belongs to store %s: jobs are enqueued there. The first store of the file whose routes, or queues, have a queue is its own.",
					r.Store, p.Text, home)})
			}
		}
	}
	return warnings
}

// exampleOf returns a queue that only this pattern, or one that covers all of its queues, can
// match: each star becomes a long, unusual text. It is "" for other globs.
func exampleOf(p selector.Pattern) string {
	if !p.Glob {
		return p.Text
	}
	if strings.ContainsAny(p.Text, `?[\`) {
		return ""
	}
	return strings.ReplaceAll(p.Text, "*", strings.Repeat("\uE000", 100))
}

// KeepSchedules drops the schedules whose jobs go to other stores. Call it when each has its
// queue. The error is Errors, for queues that belong to no store.
func (r *Resolved) KeepSchedules() error {
	if r.Store == "" {
		return nil
	}
	kept, errs := r.Schedules[:0:0], Errors(nil)
	for _, s := range r.Schedules {
		switch RouteOf(r.Routes, s.Queue) {
		case r.Store:
			kept = append(kept, s)
		case "":
			key := "schedule." + s.Name
			errs = append(errs, Error{Key: key, Value: s.Queue, Source: r.Sources[key], Message: "its queue belongs to no store; add it to the queues, or routes, of one"})
		default:
			r.SchedulesElsewhere = append(r.SchedulesElsewhere, s.Name)
		}
	}
	r.Schedules = kept
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// Home reports whether a queue's jobs belong to this store; without stores, all do.
func (c Config) Home(queue string) bool {
	return c.Store == "" || RouteOf(c.Routes, queue) == c.Store
}
