// Command virt-operator-objects prints what KubeVirt's virt-operator would install into the namespace given, as one
// JSON object of lists: its kinds, roles, webhooks and API services, and the instancetypes and preferences it ships.
// This file is the same for all releases; release.go beside it has what a release does in its own way.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// The kinds that each release has; those of later ones are in release.go.
var definitions = []func() (*extv1.CustomResourceDefinition, error){
	components.NewKubeVirtCrd,
	components.NewMigrationPolicyCrd,
	components.NewPresetCrd,
	components.NewReplicaSetCrd,
	components.NewVirtualMachineCloneCrd,
	components.NewVirtualMachineClusterInstancetypeCrd,
	components.NewVirtualMachineClusterPreferenceCrd,
	components.NewVirtualMachineCrd,
	components.NewVirtualMachineExportCrd,
	components.NewVirtualMachineInstanceCrd,
	components.NewVirtualMachineInstanceMigrationCrd,
	components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachinePoolCrd,
	components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineRestoreCrd,
	components.NewVirtualMachineSnapshotContentCrd,
	components.NewVirtualMachineSnapshotCrd,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: virt-operator-objects NAMESPACE")
		os.Exit(2)
	}
	if err := show(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func show(namespace string) error {
	var crds []*extv1.CustomResourceDefinition
	for _, define := range append(definitions, laterDefinitions...) {
		crd, err := define()
		if err != nil {
			return err
		}
		crds = append(crds, crd)
	}
	instancetypes, err := components.NewClusterInstancetypes()
	if err != nil {
		return err
	}
	preferences, err := components.NewClusterPreferences()
	if err != nil {
		return err
	}
	var roles []runtime.Object
	roles = append(roles, rbac.GetAllCluster()...)
	roles = append(roles, rbac.GetAllApiServer(namespace)...)
	roles = append(roles, controllerRoles(namespace)...)
	roles = append(roles, rbac.GetAllHandler(namespace)...)
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"customresourcedefinitions": crds,
		"rbac":                      roles,
		"apiservices":               components.NewVirtAPIAPIServices(namespace),
		"webhooks": append([]any{
			components.NewVirtAPIMutatingWebhookConfiguration(namespace),
			components.NewVirtAPIValidatingWebhookConfiguration(namespace),
		}, laterWebhooks(namespace)...),
		"instancetypes": instancetypes,
		"preferences":   preferences,
	})
}
