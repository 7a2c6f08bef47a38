// Package v1beta1 stands in for KubeVirt's, see the README.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const ConditionReady = "Ready"

type Parameter struct {
	Name, Value, Generate string
}

type VirtualMachineTemplateSpec struct {
	VirtualMachine *runtime.RawExtension
	Parameters     []Parameter
}

type VirtualMachineTemplateStatus struct {
	Conditions []metav1.Condition
}

type VirtualMachineTemplate struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   VirtualMachineTemplateSpec
	Status VirtualMachineTemplateStatus
}

func (t *VirtualMachineTemplate) DeepCopy() *VirtualMachineTemplate {
	copied := *t
	t.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

func (t *VirtualMachineTemplate) DeepCopyObject() runtime.Object {
	return t.DeepCopy()
}
