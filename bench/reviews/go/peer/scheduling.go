package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

const defaultScheduler = "default-scheduler"

type pod struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		NodeName      string `json:"nodeName"`
		SchedulerName string `json:"schedulerName"`
	} `json:"spec"`
}

func (p *pod) meta() *metadata { return &p.Metadata }

type virtualMachine struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Instancetype *struct {
			Kind         string `json:"kind"`
			Name         string `json:"name"`
			RevisionName string `json:"revisionName"`
		} `json:"instancetype"`
		Template *struct {
			Metadata *metadata `json:"metadata"`
			Spec     *struct {
				SchedulerName string `json:"schedulerName"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

func (v *virtualMachine) meta() *metadata { return &v.Metadata }

var (
	podScheduler       = []string{"spec", "schedulerName"}
	vmScheduler        = []string{"spec", "template", "spec", "schedulerName"}
	injectedAnnotation = []string{"metadata", "annotations", domain + "injected-scheduler"}
	templateAnnotation = append([]string{"spec", "template"}, injectedAnnotation...)
)

// schedulePod puts a launcher pod on the declared scheduler, where its VM's owner chose none.
func schedulePod(ctx context.Context, r *reviewer, in *request[pod], where *namespace) *decision {
	pod := in.Object
	chosen, injected := cmp.Or(pod.Spec.SchedulerName, defaultScheduler), pod.Metadata.injected()
	owner, refused := vmiOwner(&pod.Metadata)
	switch user := in.UserInfo.Username; {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: a pod's schedulerName cannot change after CREATE (this is %s)", in.Operation)
	case pod.Spec.NodeName != "":
		return skip("already-bound", "skipped: the pod is already bound to node %q", pod.Spec.NodeName)
	case refused != nil:
		return refused
	case len(r.cluster.controllers) == 0:
		return skip("kubevirt-absent", "skipped: the cluster has no KubeVirt object")
	case !r.cluster.controllers[user]:
		return skip("not-created-by-kubevirt", "skipped: the pod was created by %q, not by KubeVirt", user)
	case chosen != defaultScheduler && chosen != injected:
		return skip("foreign-scheduler", "skipped: the pod has schedulerName %q, which kubevirt-webhook did not set", chosen)
	case chosen != defaultScheduler && r.unavailable(chosen) == "":
		return skip("already-injected", "schedulerName is already %q, set by kubevirt-webhook", chosen)
	case chosen != defaultScheduler:
		why := "fell back to %q: scheduler %q, set by kubevirt-webhook, is unavailable (%s)"
		decided := warn("scheduler-fell-back", why, defaultScheduler, chosen, r.unavailable(chosen))
		decided.changes = []change{{Path: podScheduler, Old: &chosen, New: defaultScheduler, Reason: decided.reason.Code}}
		decided.notes.Scheduler = chosen
		return decided
	}
	name, unfit := r.scheduler(where)
	if unfit != nil {
		return unfit
	}
	whose := "VirtualMachineInstance " + in.Namespace + "/" + owner.Name
	vmi, err := r.cluster.vmis.cached(ctx, key{in.Namespace, owner.Name})
	switch {
	case err != nil:
		return warn("vmi-unreadable", "schedulerName was not set, because %s cannot be read: %v", whose, err)
	case vmi == nil:
		return skip("vmi-not-found", "skipped: %s does not exist", whose)
	case vmi.Metadata.UID != owner.UID:
		return skip("vmi-replaced", "skipped: %s is not the pod's own (its UID differs)", whose)
	}
	switch wanted := vmi.Spec.SchedulerName; {
	case wanted == defaultScheduler:
		return skip("owner-opted-out", "skipped: %s sets schedulerName %q", whose, wanted)
	case wanted == injected && wanted != "", wanted == "" && injected != "" && r.unavailable(injected) != "":
		return skip("already-fell-back", "skipped: the pod fell back from scheduler %q before", injected)
	case wanted != "":
		return skip("scheduler-rewritten", "skipped: %s sets schedulerName %q, but another component changed it", whose, wanted)
	}
	field := change{Path: podScheduler, New: name}
	if pod.Spec.SchedulerName != "" {
		field.Old = &pod.Spec.SchedulerName
	}
	return inject(name, whose, field, annotate(injectedAnnotation, &pod.Metadata, name))
}

// vmiOwner is the VMI that controls a launcher pod, or why there is none.
func vmiOwner(meta *metadata) (*owner, *decision) {
	if meta.Labels.App != "virt-launcher" {
		return nil, skip("not-a-launcher-pod", "skipped: the pod does not have the label kubevirt.io=virt-launcher")
	}
	i := slices.IndexFunc(meta.Owners, func(each owner) bool { return each.Controller })
	if i >= 0 {
		owner := &meta.Owners[i]
		isVMI := owner.Kind == "VirtualMachineInstance" && strings.HasPrefix(owner.APIVersion, "kubevirt.io/")
		if isVMI && owner.Name != "" && owner.UID != "" {
			return owner, nil
		}
	}
	return nil, skip("no-vmi-owner", "skipped: no VirtualMachineInstance controls the pod")
}

// scheduleVM writes the declared scheduler into a new VM's template.
func scheduleVM(ctx context.Context, r *reviewer, in *request[virtualMachine], where *namespace) *decision {
	vm := in.Object
	template := vm.Spec.Template
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: the policy does not evaluate %s", in.Operation)
	case vm.Metadata.DeletionTimestamp != "":
		return skip("being-deleted", "skipped: the VM is being deleted")
	case template == nil || template.Spec == nil:
		return skip("no-template", "skipped: the VM has no spec.template.spec")
	}
	switch chosen := template.Spec.SchedulerName; {
	case chosen == defaultScheduler:
		return skip("owner-opted-out", "skipped: the owner set schedulerName %q", chosen)
	case chosen != "" && (chosen == vm.Metadata.injected() || chosen == template.Metadata.injected()):
		return skip("already-injected", "schedulerName is already %q, set by kubevirt-webhook", chosen)
	case chosen != "":
		return skip("owner-chose-scheduler", "skipped: the owner set schedulerName %q", chosen)
	}
	name, unfit := r.scheduler(where)
	if unfit != nil {
		return unfit
	}
	if unfit := byInstancetype(ctx, r, vm, in.Namespace); unfit != nil {
		return unfit
	}
	return inject(name, "the VM", change{Path: vmScheduler, New: name},
		annotate(injectedAnnotation, &vm.Metadata, name), annotate(templateAnnotation, template.Metadata, name))
}

// byInstancetype is why a VM's instancetype forbids a scheduler in its template: KubeVirt denies a VM that sets both.
func byInstancetype(ctx context.Context, r *reviewer, vm *virtualMachine, namespace string) *decision {
	matcher := vm.Spec.Instancetype
	if matcher == nil {
		return nil
	}
	var found *instancetype
	var err error
	switch {
	case matcher.RevisionName != "" || matcher.Name == "":
	case strings.EqualFold(matcher.Kind, "VirtualMachineInstancetype"):
		found, err = r.cluster.instancetypes.cached(ctx, key{namespace, matcher.Name})
	default:
		found, err = r.cluster.clusterInstancetypes.cached(ctx, key{"", matcher.Name})
	}
	switch {
	case err != nil:
		return warn("instancetype-unreadable", "schedulerName was not set, because the VM's instancetype cannot be read: %v", err)
	case found == nil:
		return skip("instancetype-unresolved", "schedulerName was not set in the VM: its instancetype is not known")
	case found.Spec.SchedulerName != "":
		return skip("instancetype-sets-scheduler", "the VM's instancetype sets schedulerName %q", found.Spec.SchedulerName)
	}
	return nil
}

// scheduler is the one for a namespace, or why none must be written now.
func (r *reviewer) scheduler(where *namespace) (string, *decision) {
	name := cmp.Or(where.Metadata.Annotations[domain+"scheduler-name"], r.settings.Scheduling.SchedulerName)
	if _, declared := r.settings.Schedulers[name]; !declared {
		return "", warn("scheduler-undeclared", "schedulerName was not set: the settings do not declare scheduler %q", name)
	}
	if why := r.unavailable(name); why != "" {
		return "", warn("scheduler-unavailable", "scheduler %q is unavailable (%s); schedulerName was not set", name, why)
	}
	return name, nil
}

// unavailable is why a scheduler cannot place pods now; empty: it can.
func (r *reviewer) unavailable(name string) string {
	if why, declared := r.cluster.unavailable[name]; declared {
		return why
	}
	return "the settings no longer declare it"
}

func (m *metadata) injected() string {
	if m == nil || m.Annotations == nil {
		return ""
	}
	return m.Annotations.Injected
}

// annotate is the change that records which scheduler was written.
func annotate(path []string, meta *metadata, name string) change {
	made := change{Path: path, New: name}
	switch {
	case meta == nil:
		made.absent = 2
	case meta.Annotations == nil:
		made.absent = 1
	case meta.Annotations.Injected != "":
		made.Old = &meta.Annotations.Injected
	}
	return made
}

func inject(name, whose string, changes ...change) *decision {
	decided := skip("scheduler-injected", "schedulerName is set: %s sets none", whose)
	for i := range changes {
		changes[i].Reason = decided.reason.Code
	}
	decided.changes, decided.notes.Scheduler = changes, name
	return decided
}
