package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	v1 "k8s.io/kube-scheduler/config/v1"
)

// All that kube-scheduler decodes: its configuration, and the arguments of its plugins.
func kinds() map[string]any {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return registered(scheme, v1.SchemeGroupVersion)
}
