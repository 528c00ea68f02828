package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/wire"
)

// storeScope says which stores a verb asks, where there are several and --store names none.
// Whatever is named as STORE/NAME, as results have it, is looked for in that store alone.
type storeScope int

const (
	// ofAll: the verb lists or shows. What it is told to look for need not be in each.
	ofAll storeScope = iota + 1
	// ofQueues: its arguments are queues; each is in the store that it belongs to. Without
	// arguments all stores are meant.
	ofQueues
	// ofIDs: its arguments are STORE/ID.
	ofIDs
	// ofQueueFlag: the store is that of --queue.
	ofQueueFlag
)

// storeScopes are the verbs for which several stores have a meaning. The others that need Redis
// refuse to guess which one is meant.
var storeScopes = map[string]storeScope{
	"queues": ofAll, "queues ls": ofAll, "queues show": ofAll, "queues tenants": ofAll,
	"queues pause": ofQueues, "queues resume": ofQueues, "queues purge": ofQueues, "queues rm": ofQueues, "queues prune": ofQueues, "queues move": ofQueues, "queues unline": ofQueues,
	"jobs": ofAll, "jobs ls": ofAll, "jobs show": ofAll, "jobs find": ofAll,
	"jobs kill": ofIDs, "jobs rm": ofQueueFlag, "jobs move": ofQueueFlag,
	"workers": ofAll, "workers ls": ofAll, "workers show": ofAll,
	"workers pause": ofIDs, "workers resume": ofIDs, "workers drain": ofIDs, "workers recycle": ofIDs,
	"hosts": ofAll, "hosts ls": ofAll,
	"hosts dead": ofAll, // one that is dead is so for each store that it works
	"failed":     ofAll, "failed ls": ofAll, "failed show": ofAll, "failed retry": ofIDs, "failed rm": ofIDs,
	"parked": ofAll, "parked ls": ofAll, "parked retry": ofIDs, "parked rm": ofIDs, "parked payload": ofIDs,
	"schedule": ofAll, "schedule ls": ofAll, "schedule run": ofIDs, "schedule rm": ofIDs,
	"longjobs": ofAll, "longjobs ls": ofAll, "longjobs show": ofAll, "longjobs cancel": ofIDs, "longjobs pause": ofIDs, "longjobs resume": ofIDs, "longjobs requeue": ofIDs,
	"longjobs recurring": ofAll, "longjobs recurring pause": ofIDs, "longjobs recurring resume": ofIDs, "longjobs recurring rm": ofIDs,
	"locks": ofAll, "locks ls": ofAll, "locks show": ofAll, "locks waiting": ofAll, "locks unique": ofAll,
	"locks release": ofIDs, "locks repair": ofQueues,
	"stats": ofAll, "events": ofAll, "doctor": ofAll,
}

// rawVerbs write what programs take as it is: no name of a store is put in front.
var rawVerbs = []string{"parked payload"}

// severalStores is the error of a verb that needs one of several stores.
type severalStores struct {
	*problem
	loaded *config.Resolved
}

func (e *severalStores) Unwrap() error { return e.problem }

// hasStores refuses a configuration of several stores where one is needed.
func hasStores(r *config.Resolved, what string) error {
	if len(r.Stores) == 0 {
		return nil
	}
	return &severalStores{loaded: r, problem: usage("", "%s has several stores, and %s one: name it with --%s, one of %s",
		r.File, what, config.StoreFlag, strings.Join(storeNames(r), ", "))}
}

func storeNames(r *config.Resolved) []string {
	names := make([]string, len(r.Stores))
	for i, one := range r.Stores {
		names[i] = one.Store
	}
	return names
}

// addStores has the verbs ask several stores. A verb finds out that there are some when it reads
// the configuration: it has done nothing then, and is run anew for each.
func (a *cli) addStores(root *cobra.Command) {
	for path, scope := range storeScopes {
		c, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 || c.RunE == nil {
			panic("no verb for stores: " + path) // TestStoreScopes looks at each
		}
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			several, ok := errors.AsType[*severalStores](err)
			if !ok {
				return err
			}
			if follow := c.Flags().Lookup("follow"); follow != nil && follow.Changed {
				return err
			}
			asked, err := storesOf(several.loaded, scope, c, args)
			if err != nil {
				return err
			}
			return a.overStores(c, several.loaded, asked, scope, run)
		}
	}
}

// homeOf returns the store that a queue belongs to.
func homeOf(r *config.Resolved, queue string) (string, error) {
	if home := config.RouteOf(r.Stores[0].Routes, queue); home != "" {
		return home, nil
	}
	return "", usage("Add it to the routes of one, or name one with --"+config.StoreFlag+": "+strings.Join(storeNames(r), ", "),
		"queue %q belongs to no store", wire.Printable(queue, 200))
}

// askedStore is a store that a verb asks, and with which arguments.
type askedStore struct {
	name string
	args []string
}

// storesOf finds out which stores a verb asks.
func storesOf(r *config.Resolved, scope storeScope, c *cobra.Command, args []string) ([]askedStore, error) {
	names := storeNames(r)
	which := func(what, hint string) error {
		return usage(hint, "%s The configuration has several: %s", what, strings.Join(names, ", "))
	}
	named := map[string][]string{}
	for _, arg := range args {
		store, rest, found := strings.Cut(arg, "/")
		if !found || !slices.Contains(names, store) || rest == "" {
			store = ""
		}
		switch {
		case store != "":
			named[store] = append(named[store], rest)
		case scope == ofAll:
			for _, name := range names {
				named[name] = append(named[name], arg)
			}
		case scope == ofQueues:
			home, err := homeOf(r, arg)
			if err != nil {
				return nil, err
			}
			named[home] = append(named[home], arg)
		default:
			return nil, which("which store is "+wire.Printable(arg, 200)+" in?", fmt.Sprintf("Write %s/%s, or use --%s.", names[0], arg, config.StoreFlag))
		}
	}
	if len(args) == 0 {
		switch scope {
		case ofAll, ofQueues:
			for _, name := range names {
				named[name] = nil
			}
		case ofQueueFlag:
			queues, err := c.Flags().GetStringSlice("queue")
			if err != nil || len(queues) == 0 || slices.ContainsFunc(queues, func(q string) bool { return strings.ContainsAny(q, "*?[!") }) {
				return nil, which("which store?", "Name queues with --queue, or the store with --"+config.StoreFlag+".")
			}
			for _, queue := range queues {
				home, err := homeOf(r, queue)
				if err != nil {
					return nil, err
				}
				if named[home] = nil; len(named) > 1 {
					return nil, which("these queues are in different ones", "Name the store with --"+config.StoreFlag+".")
				}
			}
		default:
			return nil, which("which one is meant?", "Name it with --"+config.StoreFlag+".")
		}
	}
	if path := verbOf(c); path == "queues move" && len(named) > 1 {
		return nil, usage("To move a queue to another store: queues move QUEUE --to STORE", "the queues are in different stores")
	}
	var all []askedStore
	for _, name := range names {
		if args, ok := named[name]; ok {
			all = append(all, askedStore{name, args})
		}
	}
	return all, nil
}

// overStores runs a verb for several stores, one after the other, and shows what they have shown
// as one result. A store that cannot be asked does not hold up the others; it is named, and the
// exit code tells of it.
func (a *cli) overStores(c *cobra.Command, r *config.Resolved, asked []askedStore, scope storeScope, run func(*cobra.Command, []string) error) error {
	if len(asked) == 1 && slices.Contains(rawVerbs, verbOf(c)) {
		a.store = asked[0].name
		return run(c, asked[0].args)
	}
	// Of several that might know a name one has to: each is asked for each.
	a.seeking = false
	if scope == ofAll && len(asked) > 1 {
		var single []askedStore
		for _, one := range asked {
			for _, arg := range one.args {
				single = append(single, askedStore{one.name, []string{arg}})
			}
		}
		if len(single) > 0 {
			asked, a.seeking = single, true
		}
	}
	var worst error
	missing, found := map[string]error{}, map[string]bool{}
	pages := storePages{cli: a, merged: &listing{}}
	ctx := c.Context()
	for _, one := range asked {
		a.store = one.name
		err := pages.page(one.name, func() error { return run(c, one.args) })
		a.writeActs(ctx)
		a.acts = nil
		c.SetContext(ctx)
		if p := (*problem)(nil); a.seeking && errors.As(err, &p) && p.code == "not_found" {
			missing[one.args[0]] = err
			continue
		}
		if err == nil {
			if a.seeking {
				found[one.args[0]] = true
			}
			continue
		}
		if worst == nil {
			worst = err
		}
		var code exitCode
		if len(asked) > 1 && !errors.As(err, &code) {
			p := a.explained(asProblem(err))
			a.warn("store %s: %s", one.name, strings.Join(p.lines, "; "))
			worst = exitCode(p.exit)
		}
	}
	a.store, a.loaded = "", r
	if err := pages.print(); err != nil {
		return err
	}
	if worst != nil {
		return worst
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !found[name] {
			return missing[name]
		}
	}
	return nil
}

// storePages collects what a verb shows of each store: rows of one list, or else pages of text, or
// documents by the names of the stores.
type storePages struct {
	*cli
	// merged, if not nil, takes the lists.
	merged *listing
	listed bool
	names  []string
	texts  []string
}

// page has show print what it shows of a store.
func (p *storePages) page(store string, show func() error) error {
	var out bytes.Buffer
	stdout, yaml := p.stdout, p.flags.yaml
	p.stdout, p.flags.yaml = &out, false
	if p.merged != nil {
		p.gather = func(l *listing) { p.add(store, l) }
	}
	err := show()
	p.stdout, p.flags.yaml, p.gather = stdout, yaml, nil
	if out.Len() > 0 {
		p.names, p.texts = append(p.names, store), append(p.texts, out.String())
	}
	return err
}

// add adds the list of a store.
func (p *storePages) add(store string, l *listing) {
	m := p.merged
	p.listed = true
	if len(m.columns) == 0 && len(l.columns) > 0 {
		m.columns = append([]column{{title: "STORE"}}, l.columns...)
	}
	for i, row := range l.rows {
		row = append([]string{store}, row...)
		for k, c := range m.columns {
			// What is copied from a table to a command finds its store.
			if c.title == "ID" && i < len(l.names) && row[k] == l.names[i] {
				row[k] = store + "/" + row[k]
			}
		}
		m.rows = append(m.rows, row)
	}
	for _, name := range l.names {
		m.names = append(m.names, store+"/"+name)
	}
	for _, item := range l.items {
		m.items = append(m.items, storeItem{store, item})
	}
	m.partial = m.partial || l.partial
	if l.next != "" {
		m.partial = true
		p.note("store %s has more: see --%s %s", store, config.StoreFlag, store)
	}
}

// print prints all of it.
func (p *storePages) print() error {
	if p.listed {
		if err := p.cli.print(p.merged); err != nil {
			return err
		}
	}
	if len(p.names) == 0 {
		return nil
	}
	if p.flags.output == outJSON {
		body := orderedObject{}
		for i, name := range p.names {
			body = append(body, objectField{name, json.RawMessage(bytes.TrimSpace([]byte(p.texts[i])))})
		}
		return p.printJSON(struct {
			Stores orderedObject `json:"stores"`
		}{body})
	}
	var b bytes.Buffer
	for i, name := range p.names {
		if p.flags.output != outName {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("store " + name + "\n")
		}
		_, _ = io.WriteString(&b, p.texts[i])
	}
	return p.printText(b.String())
}

// storeItem is an item of a list in JSON, with the store that it is from in front.
type storeItem struct {
	store string
	item  any
}

// MarshalJSON puts the store into the item's object.
func (i storeItem) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(i.item); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(b.Bytes())
	inner, ok := bytes.CutPrefix(text, []byte("{"))
	if !ok {
		return text, nil
	}
	head := fmt.Sprintf(`{"store":%q`, i.store)
	if !bytes.HasPrefix(bytes.TrimSpace(inner), []byte("}")) {
		head += ","
	}
	return append([]byte(head), inner...), nil
}

// orderedObject is an object of JSON whose fields keep their order.
type orderedObject []objectField

type objectField struct {
	name  string
	value json.RawMessage
}

// MarshalJSON encodes the fields in their order.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// idleSchedules warns of the schedules that no master keeps, because their queues belong to a store that
// the daemon does not work.
func (a *cli) idleSchedules(r *config.Resolved) (warnings []config.Warning) {
	for _, one := range r.Stores {
		if len(one.Queues.Patterns) > 0 {
			continue
		}
		for _, s := range slices.Concat(one.Schedules, a.program().ClassSchedules(one.Config)) {
			warnings = append(warnings, config.Warning{Key: "stores", Code: "idle_schedule", Message: fmt.Sprintf(
				"schedule %s is kept by no daemon of this configuration: its queue, %s, belongs to store %s, which has no queues here. Give it to a daemon that works that store.",
				s.Name, s.Queue, one.Store)})
		}
	}
	return warnings
}
