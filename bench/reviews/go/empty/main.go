// Command empty is a webhook that looks at nothing: what it costs is what the API server pays for having any webhook, or,
// where it has a patch for all objects of a kind, for any that patches.
package main

import (
	"encoding/json"
	"flag"
	"net/http"

	"kubevirt-webhook.github.io/bench/reviews/internal/names"
	"kubevirt-webhook.github.io/bench/reviews/internal/serve"
)

// review is an AdmissionReview without its object.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request,omitempty"`
	Response   *answer  `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
}

type answer struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	Patch     []byte  `json:"patch,omitempty"`
	PatchType *string `json:"patchType,omitempty"`
}

var jsonPatch = "JSONPatch"

// patched answers all reviews with one patch; empty for none.
type patched struct{ patch *string }

func main() {
	pods := patched{flag.String("pod-patch", "", "JSON patch of all pods")}
	vms := patched{flag.String("vm-patch", "", "JSON patch of all VirtualMachines")}
	serve.Main(map[string]http.Handler{names.PodPath: pods, names.VMPath: vms})
}

func (p patched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := serve.Body(w, r)
	if !ok {
		return
	}
	var in review
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		http.Error(w, "not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	response := answer{UID: in.Request.UID, Allowed: true}
	if *p.patch != "" {
		response.Patch, response.PatchType = []byte(*p.patch), &jsonPatch
	}
	out, err := json.Marshal(review{in.APIVersion, in.Kind, nil, &response})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serve.Answer(w, out)
}
