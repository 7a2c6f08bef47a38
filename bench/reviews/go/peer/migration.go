package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
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

	noEligibleNode = "no-eligible-node"
	lookupFailed   = "lookup-failed"

	schedulable       = "kubevirt.io/schedulable"
	cpuModel          = "cpu-model.node.kubevirt.io/"
	cpuModelMigration = "cpu-model-migration.node.kubevirt.io/"
	cpuFeature        = "cpu-feature.node.kubevirt.io/"
	cpuVendor         = "cpu-vendor.node.kubevirt.io/"
	hostModelCPU      = "host-model-cpu.node.kubevirt.io/"
	hostModelFeatures = "host-model-required-features.node.kubevirt.io/"
	machineType       = "machine-type.node.kubevirt.io/"
	labeller          = "node-labeller.kubevirt.io/"
	obsoleteHostModel = labeller + "obsolete-host-model"
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
func validateMigration(ctx context.Context, r *reviewer, in *request[migration], _ *namespace) *decision {
	added := in.Object.Spec.AddedNodeSelector
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: a migration's spec cannot change after CREATE (this is %s)", in.Operation)
	case len(added) == 0:
		return skip("no-added-selector", "skipped: the migration has no addedNodeSelector")
	}
	if refused := selectorFault(in.Object); refused != nil {
		return refused
	}
	target, failed := r.target(ctx, in)
	if failed != nil {
		if failed.reason.Code == lookupFailed {
			failed.status = http.StatusServiceUnavailable
		}
		return failed
	}
	eligible := target.eligible(added)
	if conflicts := target.conflicts(added); len(conflicts) > 0 {
		return deny(http.StatusForbidden, "selector-conflict", "%s: %s", eligible.reason.Text, strings.Join(conflicts, "; "))
	}
	if eligible.reason.Code == noEligibleNode {
		eligible.status = http.StatusForbidden
	}
	return eligible
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
	const invalid = http.StatusUnprocessableEntity
	switch {
	case strings.HasPrefix(name, "kubevirt-evacuation-") || strings.HasPrefix(name, "kubevirt-workload-update-"):
		return deny(invalid, "migration-name-reserved", "metadata.name %q is reserved; choose another name", name)
	case len(added) > maxAdded:
		return deny(invalid, "selector-invalid", "%s has %d keys (limit %d); remove some", field, len(added), maxAdded)
	case len(faults) > 0:
		return deny(invalid, "selector-invalid", "%s: %s", field, strings.Join(slices.Sorted(slices.Values(faults)), "; "))
	case len(taken) > 0:
		return deny(http.StatusForbidden, "selector-reserved", "%s: %s: reserved for KubeVirt; remove it", field, taken)
	case migration.Spec.SendTo != nil && migration.Spec.Receive == nil:
		return deny(invalid, "selector-on-sending-side", "%s has no effect on the sending side of a migration", field)
	}
	return nil
}

// warnOfMigration warns of a migration without a selector that no node can take; never more than that.
func warnOfMigration(ctx context.Context, r *reviewer, in *request[migration], _ *namespace) *decision {
	marks := in.Object.Metadata.Annotations
	switch {
	case in.Operation != "CREATE":
		return skip("other-operation", "skipped: the policy does not evaluate %s", in.Operation)
	case len(in.Object.Spec.AddedNodeSelector) > 0:
		return skip("other-operation", "skipped: a migration with addedNodeSelector is evaluated by the validating webhook")
	case in.Object.Spec.SendTo != nil && in.Object.Spec.Receive == nil:
		return skip("selector-on-sending-side", "skipped: the target pod of this migration is created on the receiving side")
	case marks != nil && (marks.Evacuation != nil || marks.WorkloadUpdate != nil):
		return skip("requested-by-kubevirt", "skipped: KubeVirt itself migrates the VM")
	}
	target, failed := r.target(ctx, in)
	if failed != nil {
		return failed
	}
	if host := target.hostname(); host != "" && target.labels[corev1.LabelHostname] == host {
		return warn("vm-pinned-to-its-node", "this migration cannot succeed: the VM requires the node that it must leave")
	}
	eligible := target.eligible(nil)
	if eligible.reason.Code == noEligibleNode {
		eligible.warnings = []reason{eligible.reason}
	}
	return eligible
}

// target is what the target pod of a migration requires of its node, but for what the migration adds.
type target struct {
	labels      map[string]string
	affinity    *corev1.Affinity
	tolerations []corev1.Toleration
	requests    corev1.ResourceList
	nodes       []*corev1.Node
	source      string       // The name of the node that the VM must leave.
	sourceNode  *corev1.Node // Not nil, but maybe empty.
}

// target renders what matters of the target pod, as virt-controller does; or it is why that cannot be done.
func (r *reviewer) target(ctx context.Context, in *request[migration]) (*target, *decision) {
	whose := "VirtualMachineInstance " + in.Namespace + "/" + in.Object.Spec.VMIName
	// Its state decides, and a watch may be late.
	vmi, err := r.cluster.vmis.get(ctx, key{in.Namespace, in.Object.Spec.VMIName})
	switch {
	case in.Object.Spec.Receive != nil:
		return nil, skip("other-operation", "skipped: migrations between clusters are not evaluated")
	case err != nil:
		return nil, skip(lookupFailed, "the migration was not evaluated: %s cannot be read: %v", whose, err)
	case vmi == nil:
		return nil, skip("vmi-not-found", "skipped: %s does not exist", whose)
	}
	developer := &r.cluster.kubeVirt.Spec.Configuration.Developer
	t := &target{nodes: r.cluster.nodes.list(), source: vmi.Status.NodeName, sourceNode: &corev1.Node{}}
	for _, node := range t.nodes {
		if node.Name == t.source {
			t.sourceNode = node
		}
	}
	t.labels = nodeLabels(vmi, developer.NodeSelectors, t.sourceNode.Labels)
	t.affinity = nodeAffinity(vmi)
	t.tolerations = tolerations(vmi.Spec.Tolerations)
	t.requests = requests(vmi, cmp.Or(developer.CPURatio, 10))
	if !developer.UseEmulation {
		t.requests[kvm] = resource.MustParse("1")
	}
	return t, nil
}

// nodeLabels are the labels that a target pod requires: what KubeVirt's templates, its configuration and the VM's owner
// say, with the CPU that the VM has taken over from the node where it runs.
func nodeLabels(vmi *vmi, cluster, here map[string]string) map[string]string {
	cpu := &vmi.Spec.Domain.CPU
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
	if machine := cmp.Or(vmi.Status.Machine.Type, vmi.Spec.Domain.Machine.Type); machine != "" {
		labels[machineType+machine] = isTrue
	}
	// The vendor may be chosen by the VM's owner, or for the cluster.
	isHostModel, isGuarded := cpu.Model == hostModel && hasPrefix(here, hostModelCPU), hasPrefix(labels, cpuVendor)
	for label, value := range here {
		if isHostModel {
			if model, found := strings.CutPrefix(label, hostModelCPU); found {
				labels[cpuModelMigration+model] = value
			} else if feature, found := strings.CutPrefix(label, hostModelFeatures); found {
				labels[cpuFeature+feature] = value
			}
		}
		if !isGuarded && strings.HasPrefix(label, cpuVendor) {
			labels[label] = isTrue
		}
	}
	return labels
}

func hasPrefix(labels map[string]string, prefix string) bool {
	for label := range labels {
		if strings.HasPrefix(label, prefix) {
			return true
		}
	}
	return false
}

// nodeAffinity is the owner's, with what must be absent in each of its terms.
func nodeAffinity(vmi *vmi) *corev1.Affinity {
	own := vmi.Spec.Affinity
	if model := vmi.Spec.Domain.CPU.Model; model != "" && model != hostModel {
		return own
	}
	terms := []corev1.NodeSelectorTerm{{}}
	if own != nil && own.NodeAffinity != nil && own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = slices.Clone(own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	absent := corev1.NodeSelectorRequirement{Key: obsoleteHostModel, Operator: corev1.NodeSelectorOpDoesNotExist}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clip(terms[i].MatchExpressions), absent)
	}
	required := &corev1.NodeSelector{NodeSelectorTerms: terms}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

// tolerations are the owner's, with those that the admission plugin DefaultTolerationSeconds adds.
func tolerations(own []corev1.Toleration) []corev1.Toleration {
	all := slices.Clip(own)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(own, func(each corev1.Toleration) bool {
			return (each.Key == "" || each.Key == key) && (each.Effect == "" || each.Effect == corev1.TaintEffectNoExecute)
		}) {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		}
	}
	return all
}

// requests are what the target pod requests at least: the guest's CPUs by the allocation ratio, and its memory.
func requests(vmi *vmi, ratio int64) corev1.ResourceList {
	guest := &vmi.Spec.Domain
	amounts := make(corev1.ResourceList, 4)
	if _, limited := guest.Resources.Limits[corev1.ResourceCPU]; !limited && !guest.CPU.Dedicated {
		vcpus := max(guest.CPU.Cores, 1) * max(guest.CPU.Sockets, 1) * max(guest.CPU.Threads, 1)
		amounts[corev1.ResourceCPU] = *resource.NewMilliQuantity(vcpus*1000/ratio, resource.DecimalSI)
	}
	if limit, limited := guest.Resources.Limits[corev1.ResourceMemory]; limited {
		amounts[corev1.ResourceMemory] = limit
	} else if guest.Memory.Guest != nil {
		amounts[corev1.ResourceMemory] = *guest.Memory.Guest
	}
	maps.Copy(amounts, guest.Resources.Requests)
	return amounts
}

func (t *target) hostname() string { return t.sourceNode.Labels[corev1.LabelHostname] }

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

// eligible goes through the nodes with what the VM and its migration require together.
func (t *target) eligible(added map[string]string) *decision {
	own := nodeaffinity.NewRequiredNodeAffinity(t.labels, t.affinity)
	more := nodeaffinity.NewRequiredNodeAffinity(added, nil)
	count := 0
	for _, node := range t.nodes {
		// An affinity that cannot be parsed matches nothing.
		if isOwn, _ := own.Match(node); isOwn && t.fits(node) {
			if isAdded, _ := more.Match(node); isAdded {
				count++
			}
		}
	}
	code := "nodes-eligible"
	if count == 0 {
		code = noEligibleNode
	}
	decided := skip(code, "%d/%d nodes are available", count, len(t.nodes))
	if count > 0 {
		decided.notes.Eligible = strconv.Itoa(count)
	}
	return decided
}

// fits is whether a node has what is required beside labels.
func (t *target) fits(node *corev1.Node) bool {
	if host := t.hostname(); node.Name == t.source || host != "" && node.Labels[corev1.LabelHostname] == host {
		return false
	}
	keepsOut := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	logger := klog.Background()
	if _, kept := corev1helpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, t.tolerations, keepsOut, false); kept {
		return false
	}
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(logger, t.tolerations, &cordon, false) {
		return false
	}
	for name, amount := range t.requests {
		// What a kubelet has not reported yet is never a reason against its node.
		has, reported := node.Status.Allocatable[name]
		if reported && has.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}
