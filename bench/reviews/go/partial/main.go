// Command partial is the leanest webhook that Go's standard library allows: structs with the needed fields only, and
// one decode of the whole review.
//
// It shows what Go can do at its best. The benchmark builds it with
// GOEXPERIMENT=jsonv2 where the toolchain knows that experiment, which makes encoding/json decode faster.
package main

import (
	"encoding/json"
	"net/http"

	"kubevirt-webhook.github.io/bench/reviews/internal/kubevirt"
	"kubevirt-webhook.github.io/bench/reviews/internal/names"
	"kubevirt-webhook.github.io/bench/reviews/internal/serve"
)

type review[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID    string `json:"uid"`
		Object T      `json:"object"`
	} `json:"request"`
}

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	PatchType string  `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
	Status    *status `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Owners      []struct {
		Kind       string `json:"kind"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

type scheduled struct {
	SchedulerName string `json:"schedulerName"`
}

type pod struct {
	Metadata metadata  `json:"metadata"`
	Spec     scheduled `json:"spec"`
}

type virtualMachine struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Template *struct {
			Metadata metadata  `json:"metadata"`
			Spec     scheduled `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type migration struct {
	Spec struct {
		AddedNodeSelector map[string]string `json:"addedNodeSelector"`
	} `json:"spec"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func main() {
	serve.Main(map[string]http.Handler{
		names.PodPath:       handle(evaluatePod),
		names.VMPath:        handle(evaluateVM),
		names.MigrationPath: handle(evaluateMigration),
	})
}

func handle[T any](evaluate func(*T) (patch []operation, refusal string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := serve.Body(w, r)
		if !ok {
			return
		}
		var in review[T]
		if err := json.Unmarshal(body, &in); err != nil {
			http.Error(w, "not an AdmissionReview: "+err.Error(), http.StatusBadRequest)
			return
		}
		if in.Request == nil {
			http.Error(w, "an AdmissionReview without a request", http.StatusBadRequest)
			return
		}
		patch, refusal := evaluate(&in.Request.Object)
		out := answer{in.APIVersion, in.Kind, response{UID: in.Request.UID, Allowed: refusal == ""}}
		if refusal != "" {
			out.Response.Status = &status{http.StatusUnprocessableEntity, refusal}
		}
		if len(patch) > 0 {
			encoded, err := json.Marshal(patch)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			out.Response.Patch, out.Response.PatchType = encoded, "JSONPatch"
		}
		encoded, err := json.Marshal(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		serve.Answer(w, encoded)
	}
}

func evaluatePod(pod *pod) ([]operation, string) {
	chosen := pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != names.DefaultScheduler
	if chosen || pod.Metadata.Labels[names.AppLabel] != names.Launcher || !pod.Metadata.ownedByVMI() {
		return nil, ""
	}
	return append([]operation{{"add", "/spec/schedulerName", names.Scheduler}}, pod.Metadata.mark("/metadata")...), ""
}

func evaluateVM(vm *virtualMachine) ([]operation, string) {
	template := vm.Spec.Template
	if template == nil || template.Spec.SchedulerName != "" {
		return nil, ""
	}
	patch := []operation{{"add", "/spec/template/spec/schedulerName", names.Scheduler}}
	patch = append(patch, vm.Metadata.mark("/metadata")...)
	return append(patch, template.Metadata.mark("/spec/template/metadata")...), ""
}

func evaluateMigration(migration *migration) ([]operation, string) {
	return nil, kubevirt.SelectorError(migration.Spec.AddedNodeSelector)
}

func (m *metadata) ownedByVMI() bool {
	for _, owner := range m.Owners {
		if owner.Controller {
			return owner.Kind == "VirtualMachineInstance"
		}
	}
	return false
}

// mark annotates the metadata at a path; an object without annotations gets a map first.
func (m *metadata) mark(path string) []operation {
	if m.Annotations == nil {
		return []operation{{"add", path + "/annotations", map[string]string{names.Mark: names.Scheduler}}}
	}
	return []operation{{"add", path + "/annotations/" + names.MarkPointer, names.Scheduler}}
}
