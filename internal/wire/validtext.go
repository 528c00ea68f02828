package wire

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// validTexts reports whether all texts in a value encoded by encoding/json are valid UTF-8. It
// visits what encoding/json visits, except the output of custom marshalers of JSON.
func validTexts(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	t := v.Type()
	if t.Implements(jsonMarshaler) || v.CanAddr() && reflect.PointerTo(t).Implements(jsonMarshaler) {
		return true
	}
	if v.CanAddr() && reflect.PointerTo(t).Implements(textMarshaler) {
		v = v.Addr()
		t = v.Type()
	}
	if t.Implements(textMarshaler) && (t.Kind() != reflect.Pointer || !v.IsNil()) && v.CanInterface() {
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText() //nolint:forcetypeassert // as said
		return err != nil || utf8.Valid(text)
	}
	switch t.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return validTexts(v.Elem())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return true
		}
		for i := range v.Len() {
			if !validTexts(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if !validTexts(key) || !validTexts(value) {
				return false
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
				continue
			}
			if !utf8.ValidString(name) || !validTexts(v.Field(i)) {
				return false
			}
		}
	}
	return true
}
