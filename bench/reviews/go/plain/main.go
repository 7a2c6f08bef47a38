// Command plain is the webhook that most people write first: net/http, encoding/json and the API's own Go types.
//
// It decodes the whole review and the whole object, and writes the patch operations by hand.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubevirt-webhook.github.io/bench/reviews/internal/kubevirt"
	"kubevirt-webhook.github.io/bench/reviews/internal/names"
	"kubevirt-webhook.github.io/bench/reviews/internal/serve"
)

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// policy evaluates one object: the patch for it, or why it is denied.
type policy func(object []byte) (patch []operation, refusal string, err error)

func main() {
	serve.Main(map[string]http.Handler{
		names.PodPath:       review(pod),
		names.VMPath:        review(virtualMachine),
		names.MigrationPath: review(migration),
	})
}

func review(evaluate policy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := serve.Body(w, r)
		if !ok {
			return
		}
		var in admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &in); err != nil {
			http.Error(w, "not an AdmissionReview: "+err.Error(), http.StatusBadRequest)
			return
		}
		if in.Request == nil {
			http.Error(w, "an AdmissionReview without a request", http.StatusBadRequest)
			return
		}
		patch, refusal, err := evaluate(in.Request.Object.Raw)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: refusal == ""}
		if refusal != "" {
			response.Result = &metav1.Status{Code: http.StatusUnprocessableEntity, Message: refusal}
		}
		if len(patch) > 0 {
			encoded, err := json.Marshal(patch)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			kind := admissionv1.PatchTypeJSONPatch
			response.Patch, response.PatchType = encoded, &kind
		}
		answer, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: response})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		serve.Answer(w, answer)
	}
}

func pod(object []byte) ([]operation, string, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(object, &pod); err != nil {
		return nil, "", fmt.Errorf("not a Pod: %w", err)
	}
	owner := metav1.GetControllerOf(&pod)
	if pod.Labels[names.AppLabel] != names.Launcher || owner == nil || owner.Kind != "VirtualMachineInstance" {
		return nil, "", nil
	}
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != names.DefaultScheduler {
		return nil, "", nil
	}
	return append([]operation{{"add", "/spec/schedulerName", names.Scheduler}}, mark("/metadata", pod.Annotations)...), "", nil
}

func virtualMachine(object []byte) ([]operation, string, error) {
	var vm kubevirt.VirtualMachine
	if err := json.Unmarshal(object, &vm); err != nil {
		return nil, "", fmt.Errorf("not a VirtualMachine: %w", err)
	}
	if vm.Spec.Template == nil || vm.Spec.Template.Spec.SchedulerName != "" {
		return nil, "", nil
	}
	patch := []operation{{"add", "/spec/template/spec/schedulerName", names.Scheduler}}
	patch = append(patch, mark("/metadata", vm.Annotations)...)
	return append(patch, mark("/spec/template/metadata", vm.Spec.Template.ObjectMeta.Annotations)...), "", nil
}

func migration(object []byte) ([]operation, string, error) {
	var migration kubevirt.VirtualMachineInstanceMigration
	if err := json.Unmarshal(object, &migration); err != nil {
		return nil, "", fmt.Errorf("not a VirtualMachineInstanceMigration: %w", err)
	}
	return nil, kubevirt.SelectorError(migration.Spec.AddedNodeSelector), nil
}

// mark annotates the metadata at a path; an object without annotations gets a map first.
func mark(metadata string, annotations map[string]string) []operation {
	if annotations == nil {
		return []operation{{"add", metadata + "/annotations", map[string]string{names.Mark: names.Scheduler}}}
	}
	return []operation{{"add", metadata + "/annotations/" + names.MarkPointer, names.Scheduler}}
}
