package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	v1 "sigs.k8s.io/scheduler-plugins/apis/config/v1"
)

// With what a kube-scheduler decodes that is built with scheduler-plugins.
func kinds() map[string]any {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return registered(scheme, v1.SchemeGroupVersion)
}
