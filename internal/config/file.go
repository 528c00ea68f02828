package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/resqued/resqued/internal/schedule"
)

// maxFile limits the configuration file, in bytes.
const maxFile = 1 << 20

// file is a configuration file with known, unique keys and values of the right shape, unchecked.
type file struct {
	path string
	// values are string or []string, by key.
	values map[string]any
	// lines are those of keys, and of "handlers.<class>", "runners.<name>" and "schedule.<name>".
	lines     map[string]int
	entries   map[string][]int // lines of list entries
	handlers  map[string]Handler
	runners   map[string]Runner
	schedules map[string]schedule.Definition
	// stores are in the order of the file.
	stores []*fileStore
	errs   Errors
	// unreadable: nothing of the file is known; errs has the reason.
	unreadable bool
}

// loadFile reads a file that check, unless it is nil, accepts after it was opened.
func loadFile(path string, named Source, check func(os.FileInfo) error) *file {
	data, err := readLimited(path, check)
	if err != nil {
		return &file{path: path, unreadable: true, errs: Errors{{
			Key: ConfigFlag, Value: path, Source: named, Message: refusal(path, err),
		}}}
	}
	return parseFile(path, data)
}

// Open opens a file of the configuration. It refuses a named pipe, whose open may block for ever.
// An inherited one, such as /dev/stdin, is opened.
func Open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		if _, err := filepath.EvalSymlinks(path); err == nil {
			return nil, errors.New("is a FIFO, which may be waited for without end; name a file")
		}
	}
	return os.Open(path)
}

func readLimited(path string, check func(os.FileInfo) error) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if check != nil {
		info, err := f.Stat()
		if err == nil {
			err = check(info)
		}
		if err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("longer than %s; this is not a configuration file", FormatSize(maxFile))
	}
	return data, err
}

// withoutPath removes the path from a file system error: messages name it already.
func withoutPath(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return at.Err
	}
	return err
}

// parseFile reads a configuration file. It walks YAML nodes instead of decoding into a struct:
// nodes have lines, the spelling of class names and values, and duplicates.
func parseFile(path string, data []byte) *file {
	f := &file{
		path: path, values: map[string]any{}, lines: map[string]int{}, entries: map[string][]int{},
		handlers: map[string]Handler{}, runners: map[string]Runner{}, schedules: map[string]schedule.Definition{},
	}
	root, err := document(data)
	if err != nil {
		f.errs, f.unreadable = append(f.errs, syntaxError(path, data, err)), true
		return f
	}
	if root == nil || isNull(root) { // only comments
		return f
	}
	if root.Kind != yaml.MappingNode {
		f.refuse("", "", root.Line, `must be a map of keys to values, such as "worker_count: 4"`)
		f.unreadable = true
		return f
	}
	known := map[string]key{}
	for _, k := range keys() {
		known[k.name] = k
	}
	for _, field := range f.fields(root, "") {
		k, ok := known[field.name]
		switch {
		case field.name == "handlers":
			f.readHandlers(field)
		case field.name == "runners":
			f.readRunners(field)
		case field.name == "schedule":
			f.readSchedules(field)
		case field.name == "stores":
			f.readStores(field)
		case ok:
			f.readValue(k, field)
		default:
			f.refuse(field.name, "", field.line, unknown(suggest(field.name)))
		}
	}
	return f
}

// document returns the only document of the text, nil if it is empty.
func document(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, fmt.Errorf("yaml: line %d: a second document begins; a configuration is one", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	return resolved(doc.Content[0]), nil
}

type field struct {
	name  string
	line  int
	value *yaml.Node
}

// fields returns a map's fields and refuses duplicates. section is its key with a dot.
func (f *file) fields(node *yaml.Node, section string) []field {
	var all []field
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name := resolved(node.Content[i])
		value := resolved(node.Content[i+1])
		if name.Kind != yaml.ScalarNode || isNull(name) {
			f.refuse(section+"?", "", name.Line, "a key must be plain text")
			continue
		}
		if name.ShortTag() == "!!merge" {
			f.refuse(section+name.Value, "", name.Line, "merge keys are not supported; write the fields out")
			continue
		}
		if line, twice := first[name.Value]; twice {
			f.refuse(section+name.Value, "", name.Line, fmt.Sprintf("is given already on line %d; keep one of them", line))
			continue
		}
		first[name.Value] = name.Line
		all = append(all, field{name: name.Value, line: name.Line, value: value})
	}
	return all
}

// entriesOf returns the entries of a section, and notes their lines. must says what the section has
// to be.
func (f *file) entriesOf(section field, must string) []field {
	switch {
	case isNull(section.value): // every entry is commented out
		return nil
	case section.value.Kind != yaml.MappingNode:
		f.refuse(section.name, "", section.line, must)
		return nil
	}
	all := f.fields(section.value, section.name+".")
	for _, one := range all {
		f.lines[section.name+"."+one.name] = one.line
	}
	return all
}

// at is the source of a key of the file.
func (f *file) at(key string) Source {
	return Source{Kind: FromFile, Name: f.path, Line: f.lines[key]}
}

// reader reads a field; name is its whole key.
type reader func(f *file, name string, from field)

// rule says how a field of a map is read. A field of resque-scheduler that is refused has no
// reader.
type rule struct {
	name string
	read reader
}

type rules []rule

func (all rules) names() (names []string) {
	for _, one := range all {
		if one.read != nil {
			names = append(names, one.name)
		}
	}
	return names
}

// given are the fields of a map, in its order.
type given []field

// line returns the line of a field, or 0.
func (g given) line(name string) int {
	for _, one := range g {
		if one.name == name {
			return one.line
		}
	}
	return 0
}

// readMap reads the fields of a map. must is why anything else is refused; then ok is false.
func (f *file) readMap(at string, from field, must string, all rules, synonyms ...map[string]string) (fields given, ok bool) {
	if from.value.Kind != yaml.MappingNode {
		f.refuse(at, "", from.line, must)
		return nil, false
	}
	fields = f.fields(from.value, at+".")
	for _, field := range fields {
		name := at + "." + field.name
		i := slices.IndexFunc(all, func(one rule) bool { return one.name == field.name })
		switch {
		case i < 0:
			f.refuse(name, "", field.line, unknown(nearest(field.name, all.names(), synonyms...)))
		case all[i].read == nil:
			f.refuse(name, "", field.line, "is resque-scheduler's and not supported; remove it")
		default:
			all[i].read(f, name, field)
		}
	}
	return fields, true
}

// into reads a field into *to.
func into[T any](to *T, read func(f *file, name string, from field) T) reader {
	return func(f *file, name string, from field) { *to = read(f, name, from) }
}

// exact reads text into *to as it is written.
func exact(to *string, check func(string) error) reader {
	return func(f *file, name string, from field) {
		value, err := scalar(from.value)
		if err == nil {
			err = check(value)
		}
		if err != nil {
			f.refuse(name, value, from.line, err.Error())
			return
		}
		*to = value
	}
}

// read reads a field as the value of a key is read.
func (k kind) read(f *file, name string, from field) {
	exact(new(string), func(value string) error { return k.parse(strings.TrimSpace(value)) })(f, name, from)
}

// readList returns the entries of a list after it has called check for each. must is why anything
// else is refused, empty why an empty list is.
func (f *file) readList(name string, from field, must, empty string, check func(text string) error) []string {
	if from.value.Kind != yaml.SequenceNode {
		f.refuse(name, "", from.line, must)
		return nil
	}
	texts, lines, ok := f.list(name, from.value)
	if !ok {
		return nil
	}
	if len(texts) == 0 {
		f.refuse(name, "", from.line, empty)
	}
	for i, text := range texts {
		if err := check(text); err != nil {
			f.refuse(name, text, lines[i], err.Error())
		}
	}
	return texts
}

func (f *file) readValue(k key, from field) {
	if k.list && from.value.Kind == yaml.SequenceNode {
		list, lines, ok := f.list(from.name, from.value)
		if ok {
			f.values[k.name], f.lines[k.name], f.entries[k.name] = list, from.line, lines
		}
		return
	}
	if k.fields != nil && from.value.Kind == yaml.MappingNode {
		if text, ok := k.fields(f, from); ok {
			f.values[k.name], f.lines[k.name] = text, from.line
		}
		return
	}
	text, err := scalar(from.value)
	if err != nil {
		f.refuse(from.name, "", from.line, err.Error())
		return
	}
	if unquoted(from.value) && octal().MatchString(text) {
		f.refuse(from.name, text, from.line, "is read differently by YAML's versions: write "+cmp.Or(strings.TrimLeft(text, "0"), "0")+", or put it in quotes")
		return
	}
	f.values[k.name], f.lines[k.name] = text, from.line
}

// octal matches a number that YAML 1.1 reads as octal.
var octal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0[0-9]+$`) })

func (f *file) list(name string, node *yaml.Node) (list []string, lines []int, ok bool) {
	list, ok = []string{}, true
	for _, item := range node.Content {
		item = resolved(item)
		text, err := scalar(item)
		if err != nil {
			f.refuse(name, "", item.Line, err.Error())
			ok = false
		}
		list, lines = append(list, text), append(lines, item.Line)
	}
	return list, lines, ok
}

func (f *file) refuse(key, value string, line int, message string) {
	f.errs = append(f.errs, Error{
		Key: key, Value: value, Source: Source{Kind: FromFile, Name: f.path, Line: line}, Message: message,
	})
}

func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

// scalar returns a plain value exactly as written.
func scalar(node *yaml.Node) (string, error) {
	switch {
	case node.Kind == yaml.MappingNode && len(node.Content) == 2 && node.Content[0].Kind == yaml.ScalarNode:
		return "", fmt.Errorf(`must be one value, not a map; a space after ":" makes one: write %q in quotes`,
			node.Content[0].Value+":"+node.Content[1].Value)
	case node.Kind == yaml.MappingNode:
		return "", errors.New("must be one value, not a map")
	case node.Kind == yaml.SequenceNode:
		return "", errors.New("must be one value, not a list")
	case node.Kind != yaml.ScalarNode:
		return "", errors.New("must be one value")
	}
	switch tag := node.ShortTag(); tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return node.Value, nil
	case "!!merge": // "<<" is special as a key only
		return node.Value, nil
	case "!!null":
		return "", errors.New(`has no value; give one ("" is the empty text) or remove the line`)
	default:
		if text := strings.TrimSpace(tag + " " + node.Value); !strings.HasPrefix(tag, "!!") {
			return "", fmt.Errorf(`a leading "!" is special in YAML; write "%s" in quotes`, text)
		}
		return "", fmt.Errorf("tag %s is not supported; write plain text", tag)
	}
}

var (
	yamlError     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)`) })
	unknownAnchor = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^unknown anchor '(.*)' referenced`) })
	// unquotedTag matches an unquoted exclusion in a list, which YAML cannot read.
	unquotedTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\[,]\s*![^\s,]`) })
)

// tabbed returns the first tab-indented line at or after from, else before it; 0 = none.
func tabbed(data []byte, from int) int {
	before := 0
	for i, line := range bytes.Split(data, []byte("\n")) {
		indentation := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		switch {
		case bytes.IndexByte(indentation, '\t') < 0:
		case i+1 >= from:
			return i + 1
		case before == 0:
			before = i + 1
		}
	}
	return before
}

// syntaxError adds a line to an error of the YAML library and, for common mistakes, a fix.
func syntaxError(path string, data []byte, err error) Error {
	e := Error{Source: Source{Kind: FromFile, Name: path}, Message: err.Error()}
	if m := yamlError().FindStringSubmatch(e.Message); m != nil {
		e.Source.Line, _ = strconv.Atoi(m[1])
		e.Message = m[2]
	}
	parsing := strings.HasPrefix(e.Message, "did not find") || strings.HasPrefix(e.Message, "found") ||
		strings.HasPrefix(e.Message, "mapping values")
	if e.Source.Line == 0 && parsing { // the library omits the first line's number
		e.Source.Line = 1
	}
	switch tab := tabbed(data, e.Source.Line-1); {
	case tab > 0 && (strings.HasPrefix(e.Message, "found character that cannot start any token") || strings.HasPrefix(e.Message, "found a tab character")):
		e.Source.Line, e.Message = tab, "the line is indented by a tab; YAML wants spaces"
		return e
	case strings.HasPrefix(e.Message, "found character that cannot start any token"):
		e.Message += "; a value that starts with \"@\", \"%\" or a backquote needs quotes, and a tab is not a space"
	case strings.HasPrefix(e.Message, "mapping values are not allowed"):
		e.Message += `; a value with ": " in it needs quotes, and fields of one map the same indentation`
	case strings.HasPrefix(e.Message, "found unexpected end of stream"):
		e.Message += "; a quote or a bracket is never closed"
	}
	anchor := unknownAnchor().FindStringSubmatch(e.Message)
	if anchor != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+anchor[1]))
		e.Source.Line = 1 + bytes.Count(before, []byte("\n"))
	}
	if anchor != nil || strings.Contains(e.Message, "alphabetic or numeric") ||
		strings.HasPrefix(e.Message, "did not find expected ','") && unquotedTag().Match(data) {
		e.Message += `; a value that starts with "*", "&" or "!" needs quotes: "*"`
	}
	return e
}
