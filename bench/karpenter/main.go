// Command karpenter counts the nodes that Karpenter's own scheduling simulation would buy for launcher pods.
//
// Each row is one set of pods of VMs, all pending at once, and one value of the setting preference-policy. The instance
// types are those of the fake cloud provider of Karpenter's tests, with 1 to MAX CPUs and 2 GiB for each.
package main

import (
	"context"
	"fmt"
	"math"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakecr "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"
)

const (
	vms   = 20
	types = 32
)

type row struct {
	title string
	keys  []string
	skew  int32
	when  corev1.UnsatisfiableConstraintAction
}

func main() {
	log.SetLogger(logging.NopLogger)
	fmt.Printf("%d launcher pods of 1 CPU and 2 GiB; instance types with 1 to %d CPUs, 2 GiB for each\n", vms, types)
	soft, hard := corev1.ScheduleAnyway, corev1.DoNotSchedule
	host, zone := corev1.LabelHostname, corev1.LabelTopologyZone
	for _, each := range []row{
		{"no constraint", nil, 1, soft},
		{"hostname, ScheduleAnyway, maxSkew 1", []string{host}, 1, soft},
		{"hostname, ScheduleAnyway, maxSkew 5", []string{host}, 5, soft},
		{"zone, ScheduleAnyway, maxSkew 1", []string{zone}, 1, soft},
		{"zone and hostname, ScheduleAnyway, maxSkew 1", []string{zone, host}, 1, soft},
		{"hostname, DoNotSchedule, maxSkew 1", []string{host}, 1, hard},
	} {
		for _, policy := range []string{"Respect", "Ignore"} {
			nodes, most, err := solve(each, policy)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Printf("%-45s %-8s %3d nodes, at most %d pods on one\n", each.title, policy, nodes, most)
		}
	}
}

func solve(each row, policy string) (nodes, most int, err error) {
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	opts := []scheduling.Options{scheduling.NumConcurrentReconciles(2)}
	if policy == "Ignore" {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	pool := test.NodePool(v1.NodePool{Spec: v1.NodePoolSpec{Limits: v1.Limits{
		corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi"),
	}}})
	pools := []*v1.NodePool{pool}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = fake.InstanceTypes(types)
	offered := map[string][]*cloudprovider.InstanceType{pool.Name: provider.InstanceTypes}
	client, now := fakecr.NewFakeClient(), &clock.RealClock{}
	cluster := state.NewCluster(now, client, provider)
	pods := launchers(each)
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, pools, offered, pods, opts...)
	if err != nil {
		return 0, 0, err
	}
	recorder := events.NewRecorder(&record.FakeRecorder{})
	scheduler := scheduling.NewScheduler(
		ctx, client, pools, cluster, nil, topology, offered, nil, recorder, now, nil, nil, opts...,
	)
	results, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return 0, 0, err
	}
	if len(results.PodErrors) > 0 {
		return 0, 0, fmt.Errorf("%s: %d pods have no node", each.title, len(results.PodErrors))
	}
	placed := 0
	for _, claim := range results.NewNodeClaims {
		placed += len(claim.Pods)
		most = int(math.Max(float64(most), float64(len(claim.Pods))))
	}
	if placed != len(pods) {
		return 0, 0, fmt.Errorf("%s: %d of %d pods have a node", each.title, placed, len(pods))
	}
	return len(results.NewNodeClaims), most, nil
}

func launchers(each row) []*corev1.Pod {
	labels := map[string]string{"kubevirt.io": "virt-launcher"}
	var constraints []corev1.TopologySpreadConstraint
	for _, key := range each.keys {
		constraints = append(constraints, corev1.TopologySpreadConstraint{
			MaxSkew: each.skew, TopologyKey: key, WhenUnsatisfiable: each.when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		})
	}
	var pods []*corev1.Pod
	for range vms {
		pods = append(pods, test.Pod(test.PodOptions{
			ObjectMeta:                metav1.ObjectMeta{Labels: labels, UID: uuid.NewUUID()},
			TopologySpreadConstraints: constraints,
			ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi"),
			}},
		}))
	}
	return pods
}
