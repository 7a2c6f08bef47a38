// Package kubevirt has typed structs of the KubeVirt objects that the benchmark sends.
//
// KubeVirt publishes its own Go types. They are not used here, so that the module builds from Kubernetes' modules
// alone. These structs hold every field that the payloads carry, so a decode walks the same JSON, and a server that
// decodes, changes and encodes an object loses nothing of it.
package kubevirt

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is KubeVirt's core API.
var GroupVersion = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}

// AddToScheme makes the types known to a decoder.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &VirtualMachine{}, &VirtualMachineInstanceMigration{})
	return nil
}

// VirtualMachine is a virtual machine, running or not.
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineSpec `json:"spec"`
}

// VirtualMachineSpec is what the owner asks for.
type VirtualMachineSpec struct {
	Running      *bool            `json:"running,omitempty"`
	RunStrategy  *string          `json:"runStrategy,omitempty"`
	Instancetype *Matcher         `json:"instancetype,omitempty"`
	Preference   *Matcher         `json:"preference,omitempty"`
	Template     *VirtualTemplate `json:"template"`
}

// Matcher names an instancetype or a preference.
type Matcher struct {
	Name            string `json:"name,omitempty"`
	Kind            string `json:"kind,omitempty"`
	RevisionName    string `json:"revisionName,omitempty"`
	InferFromVolume string `json:"inferFromVolume,omitempty"`
}

// VirtualTemplate is the VirtualMachineInstance that a VirtualMachine makes when it starts.
type VirtualTemplate struct {
	ObjectMeta metav1.ObjectMeta  `json:"metadata,omitempty"`
	Spec       VirtualMachineBody `json:"spec,omitempty"`
}

// VirtualMachineBody is the spec of a VirtualMachineInstance.
type VirtualMachineBody struct {
	PriorityClassName             string              `json:"priorityClassName,omitempty"`
	Architecture                  string              `json:"architecture,omitempty"`
	Domain                        Domain              `json:"domain"`
	NodeSelector                  map[string]string   `json:"nodeSelector,omitempty"`
	Affinity                      *corev1.Affinity    `json:"affinity,omitempty"`
	SchedulerName                 string              `json:"schedulerName,omitempty"`
	Tolerations                   []corev1.Toleration `json:"tolerations,omitempty"`
	EvictionStrategy              *string             `json:"evictionStrategy,omitempty"`
	TerminationGracePeriodSeconds *int64              `json:"terminationGracePeriodSeconds,omitempty"`
	Networks                      []Network           `json:"networks,omitempty"`
	Volumes                       []Volume            `json:"volumes,omitempty"`
}

// Domain is the virtual hardware.
type Domain struct {
	CPU       *CPU                        `json:"cpu,omitempty"`
	Memory    *Memory                     `json:"memory,omitempty"`
	Machine   *Machine                    `json:"machine,omitempty"`
	Firmware  *Firmware                   `json:"firmware,omitempty"`
	Devices   Devices                     `json:"devices"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// CPU is the virtual processor.
type CPU struct {
	Cores   uint32 `json:"cores,omitempty"`
	Sockets uint32 `json:"sockets,omitempty"`
	Threads uint32 `json:"threads,omitempty"`
	Model   string `json:"model,omitempty"`
}

// Memory is what the guest sees.
type Memory struct {
	Guest string `json:"guest,omitempty"`
}

// Machine is the emulated board.
type Machine struct {
	Type string `json:"type"`
}

// Firmware identifies the machine to its guest.
type Firmware struct {
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
}

// Devices are what is plugged in.
type Devices struct {
	Disks      []Disk      `json:"disks,omitempty"`
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Disk shows a volume to the guest.
type Disk struct {
	Name      string  `json:"name"`
	BootOrder *uint   `json:"bootOrder,omitempty"`
	Disk      *Target `json:"disk,omitempty"`
	CDRom     *Target `json:"cdrom,omitempty"`
}

// Target is the bus that a disk hangs on.
type Target struct {
	Bus string `json:"bus,omitempty"`
}

// Interface shows a network to the guest.
type Interface struct {
	Name       string    `json:"name"`
	Model      string    `json:"model,omitempty"`
	Bridge     *struct{} `json:"bridge,omitempty"`
	Masquerade *struct{} `json:"masquerade,omitempty"`
}

// Network is what an interface is connected to.
type Network struct {
	Name string    `json:"name"`
	Pod  *struct{} `json:"pod,omitempty"`
}

// Volume is where a disk's bytes are.
type Volume struct {
	Name             string            `json:"name"`
	ContainerDisk    *ContainerDisk    `json:"containerDisk,omitempty"`
	CloudInitNoCloud *CloudInitNoCloud `json:"cloudInitNoCloud,omitempty"`
	DataVolume       *DataVolume       `json:"dataVolume,omitempty"`
}

// ContainerDisk is a disk in a container image.
type ContainerDisk struct {
	Image           string            `json:"image"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// CloudInitNoCloud is a disk with the guest's first configuration.
type CloudInitNoCloud struct {
	UserData    string `json:"userData,omitempty"`
	NetworkData string `json:"networkData,omitempty"`
}

// DataVolume names a volume that is filled by an import.
type DataVolume struct {
	Name string `json:"name"`
}

// VirtualMachineInstanceMigration asks for a live migration.
type VirtualMachineInstanceMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MigrationSpec `json:"spec"`
}

// MigrationSpec says what to move and where it may go.
type MigrationSpec struct {
	VMIName           string            `json:"vmiName,omitempty"`
	AddedNodeSelector map[string]string `json:"addedNodeSelector,omitempty"`
}

// DeepCopyObject is what a scheme asks of its types. No request of the benchmark gets here, so it may be slow.
func (in *VirtualMachine) DeepCopyObject() runtime.Object { return clone(in) }

// DeepCopyObject is what a scheme asks of its types. No request of the benchmark gets here, so it may be slow.
func (in *VirtualMachineInstanceMigration) DeepCopyObject() runtime.Object { return clone(in) }

func clone[T any](in *T) *T {
	raw, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		panic(err)
	}
	return out
}
