package main

import (
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

var laterDefinitions = []func() (*extv1.CustomResourceDefinition, error){
	components.NewVirtualMachineBackupCrd,
	components.NewVirtualMachineBackupTrackerCrd,
}

func controllerRoles(namespace string) []runtime.Object {
	return rbac.GetAllController(namespace, false)
}

func laterWebhooks(namespace string) []any {
	return []any{components.NewVirtLauncherPodMutatingWebhookConfiguration(namespace)}
}
