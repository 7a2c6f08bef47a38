package main

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// registered returns the types that a scheme knows in one version, by kind.
func registered(scheme *runtime.Scheme, version schema.GroupVersion) map[string]any {
	kinds := map[string]any{}
	for kind, t := range scheme.KnownTypes(version) {
		kinds[kind] = reflect.Zero(t).Interface()
	}
	return kinds
}
