package main

import (
	"context"
	"fmt"
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
func schedulePod(ctx context.Context, r *reviewer, in *request[pod], where *namespace) decision {
	pod := in.Object
	if in.Operation != "CREATE" {
		return skip("other-operation", "skipped: a pod's schedulerName cannot change after CREATE (this is "+in.Operation+")")
	}
	if pod.Spec.NodeName != "" {
		return skip("already-bound", fmt.Sprintf("skipped: the pod is already bound to node %q", pod.Spec.NodeName))
	}
	owner, refused := vmiOwner(&pod.Metadata)
	if refused != nil {
		return *refused
	}
	switch user := in.UserInfo.Username; {
	case len(r.cluster.controllers) == 0:
		return skip("kubevirt-absent", "skipped: the cluster has no KubeVirt object")
	case !r.cluster.controllers[user]:
		return skip("not-created-by-kubevirt", fmt.Sprintf("skipped: the pod is labeled as a virt-launcher pod but was created by %q, not by KubeVirt", user))
	}
	injected := pod.Metadata.injected()
	if chosen := pod.Spec.SchedulerName; chosen != "" && chosen != defaultScheduler {
		if injected != chosen {
			return skip("foreign-scheduler", fmt.Sprintf("skipped: the pod has schedulerName %q, which kubevirt-webhook did not set", chosen))
		}
		if why := r.unavailable(chosen); why != "" {
			text := fmt.Sprintf("fell back to scheduler %q: scheduler %q, set by kubevirt-webhook, is unavailable (%s)", defaultScheduler, chosen, why)
			decided := warn("scheduler-fell-back", text)
			decided.changes = []change{{podScheduler, &chosen, defaultScheduler, "scheduler-fell-back", 0}}
			decided.notes.Scheduler = chosen
			return decided
		}
		return skip("already-injected", fmt.Sprintf("schedulerName is already %q, set by kubevirt-webhook", chosen))
	}
	name, unfit := r.scheduler(where)
	if unfit != nil {
		return *unfit
	}
	whose := "VirtualMachineInstance " + in.Namespace + "/" + owner.Name
	vmi, err := r.cluster.vmis.cached(ctx, key{in.Namespace, owner.Name})
	switch {
	case err != nil:
		return warn("vmi-unreadable", "schedulerName was not set, because "+whose+" cannot be read: "+err.Error())
	case vmi == nil:
		return skip("vmi-not-found", "skipped: "+whose+" does not exist")
	case vmi.Metadata.UID != owner.UID:
		return skip("vmi-replaced", "skipped: "+whose+" is not the pod's own (its UID differs)")
	}
	switch chosen := vmi.Spec.SchedulerName; {
	case chosen == defaultScheduler:
		return skip("owner-opted-out", fmt.Sprintf("skipped: %s sets schedulerName %q", whose, chosen))
	case chosen != "" && chosen == injected, chosen == "" && injected != "" && r.unavailable(injected) != "":
		return skip("already-fell-back", fmt.Sprintf("skipped: the pod fell back from scheduler %q to %q before", injected, defaultScheduler))
	case chosen != "":
		return skip("scheduler-rewritten", fmt.Sprintf("skipped: %s sets schedulerName %q, but another component changed it in the pod", whose, chosen))
	}
	field := change{Path: podScheduler, New: name}
	if pod.Spec.SchedulerName != "" {
		field.Old = &pod.Spec.SchedulerName
	}
	return inject(name, whose, field, annotate(injectedAnnotation, &pod.Metadata, name))
}

// vmiOwner is the VMI that controls a launcher pod.
func vmiOwner(meta *metadata) (*owner, *decision) {
	refused := skip("no-vmi-owner", "skipped: the pod is labeled as a virt-launcher pod, but its controller is not a VirtualMachineInstance")
	if meta.Labels.App != "virt-launcher" {
		refused = skip("not-a-launcher-pod", "skipped: the pod does not have the label kubevirt.io=virt-launcher")
		return nil, &refused
	}
	for i := range meta.Owners {
		if owner := &meta.Owners[i]; owner.Controller {
			group, _, _ := strings.Cut(owner.APIVersion, "/")
			if owner.Kind == "VirtualMachineInstance" && group == "kubevirt.io" && owner.Name != "" && owner.UID != "" {
				return owner, nil
			}
			break
		}
	}
	return nil, &refused
}

// scheduleVM writes the declared scheduler into a new VM's template.
func scheduleVM(ctx context.Context, r *reviewer, in *request[virtualMachine], where *namespace) decision {
	vm := in.Object
	template := vm.Spec.Template
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: the policy does not evaluate "+in.Operation)
	case vm.Metadata.DeletionTimestamp != "":
		return skip("being-deleted", "skipped: the VM is being deleted")
	case template == nil || template.Spec == nil:
		return skip("no-template", "skipped: the VM has no spec.template.spec")
	}
	switch chosen := template.Spec.SchedulerName; {
	case chosen == defaultScheduler:
		return skip("owner-opted-out", fmt.Sprintf("skipped: the owner set schedulerName %q", chosen))
	case chosen != "" && (chosen == vm.Metadata.injected() || chosen == template.Metadata.injected()):
		return skip("already-injected", fmt.Sprintf("schedulerName is already %q, set by kubevirt-webhook", chosen))
	case chosen != "":
		return skip("owner-chose-scheduler", fmt.Sprintf("skipped: the owner set schedulerName %q", chosen))
	}
	name, unfit := r.scheduler(where)
	if unfit != nil {
		return *unfit
	}
	if refused := byInstancetype(ctx, r, vm, in.Namespace); refused != nil {
		return *refused
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
	const unset = "schedulerName was not set in the VM: its instancetype is not known (%s); its launcher pod is evaluated at creation"
	from, at := &r.cluster.clusterInstancetypes, key{"", matcher.Name}
	if strings.EqualFold(matcher.Kind, "VirtualMachineInstancetype") {
		from, at = &r.cluster.instancetypes, key{namespace, matcher.Name}
	}
	var refused decision
	if matcher.RevisionName != "" || matcher.Name == "" {
		refused = skip("instancetype-unresolved", fmt.Sprintf(unset, "it is not named"))
		return &refused
	}
	found, err := from.cached(ctx, at)
	switch {
	case err != nil:
		refused = warn("instancetype-unreadable", "schedulerName was not set, because the VM's instancetype cannot be read: "+err.Error())
	case found == nil:
		refused = skip("instancetype-unresolved", fmt.Sprintf(unset, matcher.Name+" does not exist"))
	case found.Spec.SchedulerName != "":
		refused = skip("instancetype-sets-scheduler", fmt.Sprintf("the VM's instancetype sets schedulerName %q", found.Spec.SchedulerName))
	default:
		return nil
	}
	return &refused
}

// scheduler is the one for a namespace, or why none must be written now.
func (r *reviewer) scheduler(where *namespace) (string, *decision) {
	name := where.Metadata.Annotations[domain+"scheduler-name"]
	if name == "" {
		name = r.settings.Scheduling.SchedulerName
	}
	var unfit decision
	if _, declared := r.settings.Schedulers[name]; !declared {
		unfit = warn("scheduler-undeclared", fmt.Sprintf("schedulerName was not set: the settings do not declare scheduler %q", name))
	} else if why := r.unavailable(name); why != "" {
		unfit = warn("scheduler-unavailable", fmt.Sprintf("scheduler %q is unavailable (%s); schedulerName was not set, the VM uses %q", name, why, defaultScheduler))
	} else {
		return name, nil
	}
	return "", &unfit
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

func inject(name, whose string, changes ...change) decision {
	because := reason{"scheduler-injected", "schedulerName is set: " + whose + " sets none"}
	for i := range changes {
		changes[i].Reason = because.Code
	}
	return decision{reason: because, changes: changes, notes: notes{Scheduler: name}}
}
