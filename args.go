package resqued

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// Args are the positional arguments of a job, each as the JSON text that was pushed.
type Args []json.RawMessage

// Decode stores the arguments in the value that dst points to.
//
// A struct takes one argument for each exported field, in order. A wrong number of arguments is
// an error, except that the last fields may be tagged `resqued:"optional"`: without an argument
// they keep their value. Args and []json.RawMessage take all arguments unchanged. Any other
// type takes exactly one argument, as does a struct that implements json.Unmarshaler or
// encoding.TextUnmarshaler, such as time.Time.
//
// Arguments are decoded as by encoding/json, except that a number decoded into an interface
// becomes a json.Number, so no digit is lost.
func (a Args) Decode(dst any) error {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("resqued: Decode needs a pointer to store arguments in, not a %T", dst)
	}
	v = v.Elem()
	plan := planOf(v.Type())
	for plan.elem != nil {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v, plan = v.Elem(), plan.elem
	}
	switch {
	case plan.raw:
		v.Set(reflect.ValueOf(a).Convert(v.Type()))
		return nil
	case plan.row:
		return a.decodeFields(v, plan)
	case len(a) != 1:
		return fmt.Errorf("got %s, takes 1", count(len(a)))
	default:
		return a.decode(0, "", v.Addr(), plan.plain)
	}
}

// Get decodes argument i, counted from 0, into the value that dst points to, as Decode does. It
// returns an error if there is no such argument.
func (a Args) Get(i int, dst any) error {
	v := reflect.ValueOf(dst)
	switch {
	case v.Kind() != reflect.Pointer || v.IsNil():
		return fmt.Errorf("resqued: Get needs a pointer to store an argument in, not a %T", dst)
	case i < 0 || i >= len(a):
		return fmt.Errorf("args[%d]: there is no such argument, got %s", i, count(len(a)))
	}
	return a.decode(i, "", v, isPlain(v.Type().Elem()))
}

// String returns the arguments as a JSON array; each keeps the bytes that were pushed.
func (a Args) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, arg := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		if arg == nil {
			b.WriteString("null")
		}
		b.Write(arg)
	}
	b.WriteByte(']')
	return b.String()
}

func (a Args) decodeFields(v reflect.Value, plan *argsPlan) error {
	if len(a) < plan.required || len(a) > len(plan.fields) {
		return fmt.Errorf("got %s, %s", count(len(a)), plan.takes())
	}
	for i := range a {
		f := &plan.fields[i]
		if f.plain && store(a[i], v.Field(f.index)) {
			continue
		}
		if err := a.decode(i, f.name, v.Field(f.index).Addr(), false); err != nil {
			return err
		}
	}
	return nil
}

// decode stores argument i in what ptr points to. field, if not empty, names the field in
// errors. plain is the result of isPlain for the type.
func (a Args) decode(i int, field string, ptr reflect.Value, plain bool) error {
	if plain && store(a[i], ptr.Elem()) {
		return nil
	}
	err := unmarshal(a[i], ptr)
	if err == nil {
		return nil
	}
	where := fmt.Sprintf("args[%d]", i)
	if field != "" {
		where += " (" + field + ")"
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if mismatch.Field != "" {
			where += "." + mismatch.Field
		}
		return fmt.Errorf("%s: %s does not fit into %s", where, shorten(a[i]), mismatch.Type)
	}
	return fmt.Errorf("%s: %s: %w", where, shorten(a[i]), err)
}

func unmarshal(raw json.RawMessage, ptr reflect.Value) error {
	switch kind := ptr.Elem().Kind(); {
	case kind <= reflect.Float64, kind == reflect.String:
		return json.Unmarshal(raw, ptr.Interface())
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(ptr.Interface()); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(raw[d.InputOffset():]); len(rest) > 0 {
		return errors.New("more than one JSON value")
	}
	return nil
}

type argsPlan struct {
	raw  bool      // the type is Args or []json.RawMessage
	elem *argsPlan // the type is a pointer to a field struct
	row  bool      // a struct whose fields take one argument each
	// plain is the result of isPlain for the type.
	plain    bool
	fields   []planField
	required int // minimum number of arguments
}

type planField struct {
	name  string
	index int
	plain bool
}

// plans caches argsPlans by reflect.Type: building one costs more than storing the arguments.
var plans sync.Map

func planOf(t reflect.Type) *argsPlan {
	if p, ok := plans.Load(t); ok {
		return p.(*argsPlan)
	}
	p := &argsPlan{plain: isPlain(t)}
	switch {
	case t == reflect.TypeFor[Args](), t == reflect.TypeFor[[]json.RawMessage]():
		p.raw = true
	case isFieldStruct(t):
		p.row = true
		p.addFields(t)
	default:
		p.elem = planBehind(t)
	}
	plans.Store(t, p)
	return p
}

// planBehind returns the plan of the struct that t points to, or nil if t is not such a
// pointer.
func planBehind(t reflect.Type) *argsPlan {
	if t.Kind() != reflect.Pointer || !isFieldStruct(t.Elem()) {
		return nil
	}
	return planOf(t.Elem())
}

func (p *argsPlan) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		p.fields = append(p.fields, planField{name: f.Name, index: i, plain: isPlain(f.Type)})
		if f.Tag.Get("resqued") != "optional" {
			p.required = len(p.fields)
		}
	}
}

func (p *argsPlan) takes() string {
	names := make([]string, len(p.fields))
	for i, f := range p.fields {
		names[i] = f.name
	}
	text := fmt.Sprintf("takes %d", len(p.fields))
	if p.required < len(p.fields) {
		text = fmt.Sprintf("takes %d to %d", p.required, len(p.fields))
	}
	if len(names) > 0 {
		text += " (" + strings.Join(names, ", ") + ")"
	}
	return text
}

func isFieldStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !decodesItself(t)
}

func decodesItself(t reflect.Type) bool {
	ptr := reflect.PointerTo(t)
	return ptr.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		ptr.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func count(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

func shorten(raw []byte) string {
	const limit = 60
	if len(raw) <= limit {
		return string(raw)
	}
	end := limit
	for end > 0 && !utf8.RuneStart(raw[end]) {
		end--
	}
	return string(raw[:end]) + "…"
}
