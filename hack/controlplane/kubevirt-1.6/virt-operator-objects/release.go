package main

import (
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// Kinds that came after this release.
var laterDefinitions []func() (*extv1.CustomResourceDefinition, error)

func controllerRoles(namespace string) []runtime.Object {
	return rbac.GetAllController(namespace)
}

// Webhooks that came after this release.
func laterWebhooks(string) []any {
	return nil
}
