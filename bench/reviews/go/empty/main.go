// Command empty is a webhook that looks at nothing: what it costs is what the API server pays for having any webhook.
package main

import (
	"encoding/json"
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
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
}

func main() {
	handler := http.HandlerFunc(allow)
	serve.Main(map[string]http.Handler{names.PodPath: handler, names.VMPath: handler})
}

func allow(w http.ResponseWriter, r *http.Request) {
	body, ok := serve.Body(w, r)
	if !ok {
		return
	}
	var in review
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		http.Error(w, "not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	out, err := json.Marshal(review{in.APIVersion, in.Kind, nil, &answer{in.Request.UID, true}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serve.Answer(w, out)
}
