package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

type migration struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		VMIName           string            `json:"vmiName"`
		AddedNodeSelector map[string]string `json:"addedNodeSelector"`
		SendTo            *struct{}         `json:"sendTo"`
		Receive           *struct{}         `json:"receive"`
	} `json:"spec"`
}

func (m *migration) meta() *metadata { return &m.Metadata }

const (
	field     = "spec.addedNodeSelector"
	maxAdded  = 256
	isTrue    = "true"
	hostModel = "host-model"

	schedulable       = "kubevirt.io/schedulable"
	cpuModel          = "cpu-model.node.kubevirt.io/"
	cpuModelMigration = "cpu-model-migration.node.kubevirt.io/"
	cpuFeature        = "cpu-feature.node.kubevirt.io/"
	cpuVendor         = "cpu-vendor.node.kubevirt.io/"
	hostModelCPU      = "host-model-cpu.node.kubevirt.io/"
	hostModelFeatures = "host-model-required-features.node.kubevirt.io/"
	machineType       = "machine-type.node.kubevirt.io/"
	labeller          = "node-labeller.kubevirt.io/"
	kvm               = "devices.kubevirt.io/kvm"
)

var (
	// reserved are the beginnings of the labels that only KubeVirt may require.
	reserved = []string{
		cpuVendor, cpuFeature, cpuModel, cpuModelMigration, hostModelCPU, hostModelFeatures, machineType,
		"hyperv.node.kubevirt.io/", labeller,
	}
	// cordon is what spec.unschedulable means.
	cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
)

// validateMigration denies a migration whose selector is malformed, or leaves no node.
func validateMigration(ctx context.Context, r *reviewer, in *request[migration], _ *namespace) decision {
	migration := in.Object
	added := migration.Spec.AddedNodeSelector
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: a migration's spec cannot change after CREATE (this is "+in.Operation+")")
	case len(added) == 0:
		return skip("no-added-selector", "skipped: the migration has no addedNodeSelector")
	}
	if refused := selectorFault(migration); refused != nil {
		return *refused
	}
	target, failed := r.target(ctx, in)
	if failed != nil {
		if failed.reason.Code == "lookup-failed" {
			failed.denied = 503
		}
		return *failed
	}
	count := target.count(added)
	if conflicts := target.conflicts(added); len(conflicts) > 0 {
		return deny(403, "selector-conflict", count.String()+": "+strings.Join(conflicts, "; "))
	}
	if count.eligible == 0 {
		return deny(403, "no-eligible-node", count.String())
	}
	return count.decision()
}

// selectorFault is what is wrong with a selector by itself, or with having one.
func selectorFault(migration *migration) *decision {
	added, name := migration.Spec.AddedNodeSelector, migration.Metadata.Name
	var faults, taken []string
	for label, value := range added {
		faults = append(append(faults, validation.IsQualifiedName(label)...), validation.IsValidLabelValue(value)...)
		if label == schedulable || slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(label, prefix) }) {
			taken = append(taken, label)
		}
	}
	slices.Sort(faults)
	slices.Sort(taken)
	var refused decision
	switch {
	case strings.HasPrefix(name, "kubevirt-evacuation-") || strings.HasPrefix(name, "kubevirt-workload-update-"):
		refused = deny(422, "migration-name-reserved", fmt.Sprintf("metadata.name %q is reserved; choose another name", name))
	case len(added) > maxAdded:
		refused = deny(422, "selector-invalid", fmt.Sprintf("%s has %d keys (limit %d); remove some", field, len(added), maxAdded))
	case len(faults) > 0:
		refused = deny(422, "selector-invalid", field+": "+strings.Join(faults, "; "))
	case len(taken) > 0:
		refused = deny(403, "selector-reserved", field+": "+strings.Join(taken, ", ")+": reserved for KubeVirt; remove it")
	case migration.Spec.SendTo != nil && migration.Spec.Receive == nil:
		refused = deny(422, "selector-on-sending-side", field+" has no effect on the sending side of a migration")
	default:
		return nil
	}
	return &refused
}

// warnOfMigration warns of a migration without a selector that no node can take; never more than that.
func warnOfMigration(ctx context.Context, r *reviewer, in *request[migration], _ *namespace) decision {
	migration := in.Object
	marks := migration.Metadata.Annotations
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: the policy does not evaluate "+in.Operation)
	case len(migration.Spec.AddedNodeSelector) > 0:
		return skip("other-operation", "skipped: a migration with addedNodeSelector is evaluated by the validating webhook")
	case migration.Spec.SendTo != nil && migration.Spec.Receive == nil:
		return skip("selector-on-sending-side", "skipped: the target pod of this migration is created on the receiving side")
	case marks != nil && (marks.Evacuation != nil || marks.WorkloadUpdate != nil):
		return skip("requested-by-kubevirt", "skipped: KubeVirt itself migrates the VM")
	}
	target, failed := r.target(ctx, in)
	if failed != nil {
		return *failed
	}
	if host := target.hostname(); host != "" && target.labels[corev1.LabelHostname] == host {
		return warn("vm-pinned-to-its-node", "this migration cannot succeed: the VM requires the node that it must leave")
	}
	count := target.count(nil)
	if count.eligible == 0 {
		return warn("no-eligible-node", count.String())
	}
	return count.decision()
}

// count is how many nodes there are, and how many of them could take the VM.
type count struct{ eligible, total int }

func (c count) String() string { return fmt.Sprintf("%d/%d nodes are available", c.eligible, c.total) }

func (c count) decision() decision {
	decided := skip("nodes-eligible", c.String())
	decided.notes.Eligible = strconv.Itoa(c.eligible)
	return decided
}

// target is what the target pod of a migration requires of its node, but for what the migration adds.
type target struct {
	labels      map[string]string
	affinity    *corev1.Affinity
	tolerations []corev1.Toleration
	requests    corev1.ResourceList
	kvm         bool
	nodes       []*corev1.Node
	source      string
	sourceNode  *corev1.Node
}

// target renders what matters of the target pod, as KubeVirt's virt-controller does; or why that cannot be done.
func (r *reviewer) target(ctx context.Context, in *request[migration]) (*target, *decision) {
	var failed decision
	if in.Object.Spec.Receive != nil {
		failed = skip("other-operation", "skipped: migrations between clusters are not evaluated")
		return nil, &failed
	}
	name := in.Object.Spec.VMIName
	// Its state decides, and a watch may be late.
	vmi, err := r.cluster.vmis.get(ctx, key{in.Namespace, name})
	switch {
	case err != nil:
		failed = skip("lookup-failed", "the migration was not evaluated: VirtualMachineInstance "+in.Namespace+"/"+name+" cannot be read: "+err.Error())
		return nil, &failed
	case vmi == nil:
		failed = skip("vmi-not-found", "skipped: VirtualMachineInstance "+in.Namespace+"/"+name+" does not exist")
		return nil, &failed
	}
	developer := &r.cluster.kubeVirt.Spec.Configuration.Developer
	t := &target{nodes: r.cluster.nodes.list(), source: vmi.Status.NodeName, kvm: !developer.UseEmulation}
	var here map[string]string
	for _, node := range t.nodes {
		if node.Name == t.source {
			t.sourceNode, here = node, node.Labels
		}
	}
	t.labels = nodeLabels(vmi, developer.NodeSelectors, here)
	t.affinity = nodeAffinity(vmi)
	// As the admission plugin DefaultTolerationSeconds adds them.
	t.tolerations = vmi.Spec.Tolerations
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		said := slices.ContainsFunc(vmi.Spec.Tolerations, func(each corev1.Toleration) bool {
			return (each.Key == "" || each.Key == key) && (each.Effect == "" || each.Effect == corev1.TaintEffectNoExecute)
		})
		if !said {
			added := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
			t.tolerations = append(slices.Clip(t.tolerations), added)
		}
	}
	t.requests = requests(vmi, developer.CPURatio)
	return t, nil
}

// nodeLabels are the labels that a target pod requires: what KubeVirt's templates, its configuration and the VM's owner
// say, with the CPU that the VM has taken over from the node where it runs.
func nodeLabels(vmi *vmi, cluster, here map[string]string) map[string]string {
	guest, cpu := &vmi.Spec.Domain, &vmi.Spec.Domain.CPU
	labels := make(map[string]string, 16)
	labels[schedulable] = isTrue
	if vmi.Spec.Architecture != "" {
		labels[corev1.LabelArchStable] = strings.ToLower(vmi.Spec.Architecture)
	}
	maps.Copy(labels, cluster)
	maps.Copy(labels, vmi.Spec.NodeSelector)
	if cpu.Dedicated {
		labels["kubevirt.io/cpumanager"] = isTrue
	}
	if cpu.Model != "" && cpu.Model != hostModel && cpu.Model != "host-passthrough" {
		labels[cpuModel+cpu.Model] = isTrue
	}
	for _, feature := range cpu.Features {
		if cpu.Model != "" && (feature.Policy == "" || feature.Policy == "require") {
			labels[cpuFeature+feature.Name] = isTrue
		}
	}
	if kind := cmp.Or(vmi.Status.Machine.Type, guest.Machine.Type); kind != "" {
		labels[machineType+kind] = isTrue
	}
	if cpu.Model == hostModel {
		carry(labels, here)
	}
	vendors := make(map[string]string, 1)
	for label := range here {
		if strings.HasPrefix(label, cpuVendor) {
			vendors[label] = isTrue
		}
	}
	for label := range labels {
		if strings.HasPrefix(label, cpuVendor) {
			return labels // The owner's choice, or the cluster's.
		}
	}
	maps.Copy(labels, vendors)
	return labels
}

// carry adds the labels that other nodes need to run the CPU model of this one.
func carry(labels, here map[string]string) {
	named := false
	for label, value := range here {
		if model, found := strings.CutPrefix(label, hostModelCPU); found {
			labels[cpuModelMigration+model], named = value, true
		}
	}
	for label, value := range here {
		if feature, found := strings.CutPrefix(label, hostModelFeatures); found && named {
			labels[cpuFeature+feature] = value
		}
	}
}

// nodeAffinity is the owner's, with what must be absent in each of its terms.
func nodeAffinity(vmi *vmi) *corev1.Affinity {
	cpu := &vmi.Spec.Domain.CPU
	var absent []corev1.NodeSelectorRequirement
	forbid := func(label string) {
		absent = append(absent, corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	if cpu.Model == "" || cpu.Model == hostModel {
		forbid(labeller + "obsolete-host-model")
	}
	for _, feature := range cpu.Features {
		if feature.Policy == "forbid" {
			forbid(cpuFeature + feature.Name)
		}
	}
	own := vmi.Spec.Affinity
	if len(absent) == 0 {
		return own
	}
	terms := []corev1.NodeSelectorTerm{{}}
	if own != nil && own.NodeAffinity != nil && own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = slices.Clone(own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clip(terms[i].MatchExpressions), absent...)
	}
	required := &corev1.NodeSelector{NodeSelectorTerms: terms}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

// requests are what the target pod requests at least: the guest's CPUs by the allocation ratio, and its memory.
func requests(vmi *vmi, ratio int64) corev1.ResourceList {
	guest := &vmi.Spec.Domain
	own := guest.Resources
	amounts := maps.Clone(own.Requests)
	if amounts == nil {
		amounts = corev1.ResourceList{}
	}
	_, requested := own.Requests[corev1.ResourceCPU]
	_, limited := own.Limits[corev1.ResourceCPU]
	if !requested && !limited && !guest.CPU.Dedicated {
		vcpus := max(guest.CPU.Cores, 1) * max(guest.CPU.Sockets, 1) * max(guest.CPU.Threads, 1)
		amounts[corev1.ResourceCPU] = *resource.NewMilliQuantity(vcpus*1000/cmp.Or(ratio, 10), resource.DecimalSI)
	}
	if _, found := amounts[corev1.ResourceMemory]; !found {
		if limit, limited := own.Limits[corev1.ResourceMemory]; limited {
			amounts[corev1.ResourceMemory] = limit
		} else if guest.Memory.Guest != nil {
			amounts[corev1.ResourceMemory] = *guest.Memory.Guest
		}
	}
	return amounts
}

func (t *target) hostname() string {
	if t.sourceNode == nil {
		return ""
	}
	return t.sourceNode.Labels[corev1.LabelHostname]
}

// conflicts are the labels that a migration adds and the VM requires otherwise: KubeVirt drops them silently.
func (t *target) conflicts(added map[string]string) (found []string) {
	for label, value := range added {
		required, known := t.labels[label]
		switch {
		case known && required != value:
			found = append(found, fmt.Sprintf("addedNodeSelector requires %s=%s, but the VM requires %s=%s", label, value, label, required))
		case label == corev1.LabelHostname && value == t.hostname():
			found = append(found, fmt.Sprintf("addedNodeSelector requires %s=%s, but the migration must leave the VM's current node", label, value))
		}
	}
	slices.Sort(found)
	return found
}

// count goes through the nodes with what the VM and its migration require together.
func (t *target) count(added map[string]string) count {
	own := nodeaffinity.NewRequiredNodeAffinity(t.labels, t.affinity)
	more := nodeaffinity.NewRequiredNodeAffinity(added, nil)
	result := count{total: len(t.nodes)}
	for _, node := range t.nodes {
		if t.fits(node) && matches(own, node) && matches(more, node) {
			result.eligible++
		}
	}
	return result
}

func matches(required nodeaffinity.RequiredNodeAffinity, node *corev1.Node) bool {
	match, err := required.Match(node)
	return match && err == nil
}

// fits is whether a node has what is required beside labels.
func (t *target) fits(node *corev1.Node) bool {
	if node.Name == t.source || t.sourceNode != nil && t.hostname() != "" && node.Labels[corev1.LabelHostname] == t.hostname() {
		return false
	}
	keepsOut := func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}
	logger := klog.Background()
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(logger, t.tolerations, &cordon, false) {
		return false
	}
	if _, kept := corev1helpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, t.tolerations, keepsOut, false); kept {
		return false
	}
	offered := node.Status.Allocatable
	if offered == nil {
		return true // Its kubelet has not reported yet.
	}
	if amount, reported := offered[kvm]; t.kvm && reported && amount.IsZero() {
		return false
	}
	for name, amount := range t.requests {
		if has, reported := offered[name]; has.Cmp(amount) < 0 && (reported || name != corev1.ResourceCPU && name != corev1.ResourceMemory) {
			return false
		}
	}
	return true
}
