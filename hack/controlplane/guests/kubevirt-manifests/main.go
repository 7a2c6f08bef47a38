// Command kubevirt-manifests prints what a user applies to install KubeVirt's virt-operator, as one JSON array: the
// namespace, the priority class, the kind KubeVirt, virt-operator's roles and virt-operator itself.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: kubevirt-manifests REGISTRY VERSION NAMESPACE")
		os.Exit(2)
	}
	if err := show(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func show(registry, version, namespace string) error {
	crd, err := components.NewKubeVirtCrd()
	if err != nil {
		return err
	}
	objects := []any{
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
		},
		components.NewKubeVirtPriorityClassCR(),
		crd,
	}
	objects = append(objects, rbac.GetAllOperator(namespace)...)
	one := int32(1)
	operator := components.NewOperatorDeployment(
		namespace, registry, "", version, "2", version, "", "", "", "", "", "", "", "", "", "", "", "", "", "",
		corev1.PullIfNotPresent,
	)
	operator.Spec.Replicas = &one
	return json.NewEncoder(os.Stdout).Encode(append(objects, operator))
}
