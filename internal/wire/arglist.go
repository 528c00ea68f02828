package wire

import (
	"encoding"
	"encoding/json"
	"reflect"

	"github.com/resqued/resqued"
)

// ArgList turns a caller's value into one that encodes to a list of arguments. It mirrors resqued.Args.Decode.
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
		// encoding/json encodes bytes as one base64 text.
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return v.Interface()
		}
	}
	return []any{v.Interface()}
}

// Args converts a caller's value into arguments, by the rules of ArgList.
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

// fields omits trailing optional zero fields. Workers that do not know a new field then take the
// job, and its lock equals that of a job pushed before the field existed.
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

// encodesItself reports whether a struct, such as time.Time, is one argument.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
