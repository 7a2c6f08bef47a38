// Package main prints Go types as JSON shows them: of each struct its fields, with their types and whether they are left
// out when empty. Beside this file stand those that say which types. hack/kubevirt_types.py runs them in modules of
// hack/controlplane, whose versions of the types they print.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Field is a field of a struct under the name that JSON has for it.
type Field struct {
	Name string `json:"name"`
	// In Go's syntax, of structs with the path of their package; of other named types the type that they name.
	Type      string `json:"type"`
	OmitEmpty bool   `json:"omitEmpty,omitempty"`
	OmitZero  bool   `json:"omitZero,omitempty"`
}

var (
	marshaler = reflect.TypeFor[json.Marshaler]()
	structs   = map[string][]Field{}
)

// isLeaf says whether a type writes itself, such as a quantity.
func isLeaf(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func name(t reflect.Type) string {
	if t.Kind() != reflect.Pointer && t.Name() != "" && (t.Kind() == reflect.Struct || isLeaf(t)) {
		full := t.PkgPath() + "." + t.Name()
		if _, seen := structs[full]; !seen && !isLeaf(t) {
			structs[full] = nil // it may hold itself
			structs[full] = fields(t)
		}
		return full
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + name(t.Elem())
	case reflect.Slice:
		return "[]" + name(t.Elem())
	case reflect.Map:
		return "map[" + name(t.Key()) + "]" + name(t.Elem())
	default:
		return t.Kind().String()
	}
}

func fields(t reflect.Type) []Field {
	found := []Field{}
	for i := range t.NumField() {
		field := t.Field(i)
		named, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if named == "-" || !field.IsExported() {
			continue
		}
		if field.Anonymous && named == "" {
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			found = append(found, fields(embedded)...)
			continue
		}
		if named == "" {
			named = field.Name
		}
		tags := strings.Split(options, ",")
		found = append(found, Field{
			named, name(field.Type), slices.Contains(tags, "omitempty"), slices.Contains(tags, "omitzero"),
		})
	}
	return found
}

func main() {
	roots := map[string]string{}
	for kind, value := range kinds() {
		roots[kind] = name(reflect.TypeOf(value))
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"kinds": roots, "structs": structs}); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
