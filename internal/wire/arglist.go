package wire

import (
	"encoding"
	"encoding/json"
	"reflect"

	"github.com/resqued/resqued"
)

// ArgList turns what a caller passes into what encodes to a list of arguments.
// It is the counterpart of resqued.Args.Decode.
func ArgList(args any) any {
	switch a := args.(type) {
	case nil, resqued.Args, []json.RawMessage:
		return a
	case json.Marshaler, encoding.TextMarshaler:
		return []any{a}
	}
	v := reflect.ValueOf(args)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		if encodesItself(v.Type()) {
			return []any{args}
		}
		return fields(v)
	case reflect.Array, reflect.Slice:
		// encoding/json writes bytes as one text.
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return v.Interface()
		}
	}
	return []any{v.Interface()}
}

// Args converts what a caller passes into arguments, by the rules of ArgList.
func Args(args any) (resqued.Args, error) {
	payload, err := EncodePayload("Args", ArgList(args))
	if err != nil {
		return nil, err
	}
	e, err := Parse(payload, 0)
	if err != nil {
		return nil, err
	}
	return e.Args, nil
}

// fields leaves out the last ones that are optional and zero: workers that do not know a new field
// take the job, and it has the lock of one that was pushed before the field was there.
func fields(v reflect.Value) []any {
	list, needed := []any{}, 0
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		list = append(list, v.Field(i).Interface())
		if f.Tag.Get("resqued") != "optional" || !v.Field(i).IsZero() {
			needed = len(list)
		}
	}
	return list[:needed]
}

// encodesItself reports a struct such as time.Time that is one argument.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
