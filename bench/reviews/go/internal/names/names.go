// Package names holds what all the servers of the benchmark write into objects, and where they are called.
package names

const (
	// Scheduler is the name that every server writes where the owner chose none.
	Scheduler = "kubevirt"

	// DefaultScheduler is what the API server writes into a pod that names no scheduler.
	DefaultScheduler = "default-scheduler"

	// Mark is the annotation that says which scheduler was written by a webhook.
	Mark = "kubevirt-webhook.github.io/injected-scheduler"

	// MarkPointer is Mark as one segment of a JSON pointer.
	MarkPointer = "kubevirt-webhook.github.io~1injected-scheduler"

	// AppLabel and Launcher mark the pods that carry a virtual machine.
	AppLabel = "kubevirt.io"
	Launcher = "virt-launcher"

	// PodPath, VMPath and MigrationPath are the endpoints of every server but kubevirt-webhook.
	PodPath       = "/mutate/pods"
	VMPath        = "/mutate/virtualmachines"
	MigrationPath = "/validate/migrations"

	// ReadyPath answers 200 as soon as a server takes reviews.
	ReadyPath = "/readyz"
)
