package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	domain      = "kubevirt-webhook.github.io/"
	jsonType    = "application/json"
	maxBody     = 7 << 20
	maxPooled   = 64 << 10
	maxInFlight = 64

	// defaultTimeout counts where the API server names none; of any, a tenth is kept for the way back.
	defaultTimeout = 3 * time.Second
	maxTimeout     = 30 * time.Second
)

// review is an AdmissionReview with the fields that a policy reads of an object.
type review[T any] struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Request    *request[T] `json:"request"`
}

type request[T any] struct {
	UID         string `json:"uid"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Operation   string `json:"operation"`
	SubResource string `json:"subResource"`
	DryRun      bool   `json:"dryRun"`
	UserInfo    struct {
		Username string `json:"username"`
	} `json:"userInfo"`
	Object *T `json:"object"`
}

// metadata has the labels and annotations that decisions depend on, and no maps of all.
type metadata struct {
	Name              string `json:"name"`
	GenerateName      string `json:"generateName"`
	DeletionTimestamp string `json:"deletionTimestamp"`
	Labels            struct {
		App string `json:"'kubevirt.io'"`
	} `json:"labels"`
	Annotations *struct {
		Injected       string  `json:"'kubevirt-webhook.github.io/injected-scheduler'"`
		Evacuation     *string `json:"'kubevirt.io/evacuationMigration'"`
		WorkloadUpdate *string `json:"'kubevirt.io/workloadUpdateMigration'"`
	} `json:"annotations"`
	Owners []owner `json:"ownerReferences"`
}

type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitzero"`
	Patch     []byte   `json:"patch,omitzero"`
	PatchType string   `json:"patchType,omitzero"`
	Warnings  []string `json:"warnings,omitzero"`
	Notes     notes    `json:"auditAnnotations"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type notes struct {
	UID       string `json:"uid"`
	Mode      string `json:"mode"`
	Decision  string `json:"decision"`
	Reason    string `json:"reason"`
	Scheduler string `json:"scheduler,omitzero"`
	Eligible  string `json:"eligible-nodes,omitzero"`
}

type reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// change is a value that a policy writes; the last so many names of its path are absent from the object.
type change struct {
	Path   []string `json:"path"`
	Old    *string  `json:"old"`
	New    string   `json:"new"`
	Reason string   `json:"reason"`
	absent int
}

type operation struct {
	Op    string           `json:"op"`
	Path  jsontext.Pointer `json:"path"`
	Value any              `json:"value"`
}

// decision is what mode enforce does.
type decision struct {
	reason   reason
	changes  []change
	status   int // Of a denial; 0: allowed.
	warnings []reason
	notes    notes
	label    string // Of what no policy has decided.
}

func skip(code, text string, values ...any) *decision {
	return &decision{reason: reason{code, fmt.Sprintf(text, values...)}}
}

func warn(code, text string, values ...any) *decision {
	decided := skip(code, text, values...)
	decided.warnings = []reason{decided.reason}
	return decided
}

func deny(status int, code, text string, values ...any) *decision {
	decided := skip(code, text, values...)
	decided.status = status
	return decided
}

// endpoint is a path and the policy behind it.
type endpoint[T any] struct {
	verb, policy, resource, kind string
	decide                       func(ctx context.Context, r *reviewer, in *request[T], where *namespace) *decision
}

func (e *endpoint[T]) path() string {
	return "/" + e.verb + "/" + e.policy + "/" + e.resource + "/enforce"
}

type reviewer struct {
	settings *settings
	cluster  *cluster
	metrics  *metrics
	audit    *auditLog
	inFlight chan struct{}
}

func (r *reviewer) handler() http.Handler {
	mux := http.NewServeMux()
	const migrations, kind = "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
	handle(mux, r, endpoint[pod]{"mutate", "scheduling", "pods", "Pod", schedulePod})
	handle(mux, r, endpoint[virtualMachine]{"mutate", "scheduling", "virtualmachines", "VirtualMachine", scheduleVM})
	handle(mux, r, endpoint[migration]{"validate", "migration", migrations, kind, validateMigration})
	handle(mux, r, endpoint[migration]{"mutate", "migration", migrations, kind, warnOfMigration})
	return mux
}

// handle serves an endpoint, and counts its requests.
func handle[T any](mux *http.ServeMux, r *reviewer, at endpoint[T]) {
	path := at.path()
	latency := r.metrics.latency.WithLabelValues(path)
	mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
		start := time.Now()
		r.metrics.inFlight.Inc()
		status, body := http.StatusInternalServerError, []byte("internal error")
		defer func() {
			if caught := recover(); caught != nil {
				r.metrics.panics.WithLabelValues(path).Inc()
				slog.Error("internal error", "path", path, "error", caught, "stack", string(debug.Stack()))
			}
			r.metrics.inFlight.Dec()
			r.metrics.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
			latency.Observe(time.Since(start).Seconds())
			if status != http.StatusOK {
				http.Error(w, string(body), status)
				return
			}
			w.Header().Set("Content-Type", jsonType)
			_, _ = w.Write(body) // The client is gone if this fails.
		}()
		status, body = serve(w, request, r, &at, path)
	})
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serve is the HTTP status and the body that answer one request.
func serve[T any](w http.ResponseWriter, request *http.Request, r *reviewer, at *endpoint[T], path string) (int, []byte) {
	sent := request.Header.Get("Content-Type")
	if kind, _, _ := strings.Cut(sent, ";"); request.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, []byte("POST an AdmissionReview")
	} else if !strings.EqualFold(strings.TrimSpace(kind), jsonType) {
		return http.StatusUnsupportedMediaType, []byte("send " + jsonType)
	}
	timeout, err := time.ParseDuration(request.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(request.Context(), min(timeout, maxTimeout)*9/10)
	defer cancel()
	select {
	case r.inFlight <- struct{}{}:
		defer func() { <-r.inFlight }()
	case <-ctx.Done():
		return http.StatusTooManyRequests, []byte("too many reviews in progress")
	}
	body := buffers.Get().(*bytes.Buffer)
	defer func() {
		if body.Cap() <= maxPooled {
			buffers.Put(body)
		}
	}()
	body.Reset()
	body.Grow(int(min(max(request.ContentLength, 0), maxBody)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, request.Body, maxBody)); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return http.StatusRequestEntityTooLarge, []byte("the review is too large")
		}
		return http.StatusBadRequest, []byte("the review cannot be read: " + err.Error())
	}
	start := time.Now()
	var in review[T]
	// The API server writes no name twice.
	if err := json.Unmarshal(body.Bytes(), &in, jsontext.AllowDuplicateNames(true)); err != nil {
		return http.StatusBadRequest, []byte("not an AdmissionReview of a " + at.kind + ": " + err.Error())
	}
	if in.Request == nil || in.Request.UID == "" {
		return http.StatusBadRequest, []byte("an AdmissionReview without a request")
	}
	mode, decided := evaluate(ctx, r, at, in.Request)
	out := decided.under(mode, at.policy)
	out.UID, out.Notes.UID = in.Request.UID, in.Request.UID
	r.metrics.decisions.WithLabelValues(
		at.policy, at.resource, mode, out.Notes.Decision, decided.reason.Code, strconv.FormatBool(in.Request.DryRun),
	).Inc()
	report(r, at, path, in.Request, decided, &out, time.Since(start))
	return http.StatusOK, encoded(answer{in.APIVersion, in.Kind, out})
}

// encoded is the JSON of what can always be encoded.
func encoded(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return content
}

// evaluate finds the namespace's mode, and decides.
func evaluate[T any](ctx context.Context, r *reviewer, at *endpoint[T], in *request[T]) (mode string, decided *decision) {
	label, place := domain+at.policy, key{name: in.Namespace}
	where, err := r.cluster.namespaces.cached(ctx, place)
	if err == nil && where != nil && where.mode(label) == "off" {
		where, err = r.cluster.namespaces.get(ctx, place) // The watch may be late.
	}
	if where != nil {
		mode = where.mode(label)
	}
	switch {
	case r.cluster.excluded[in.Namespace]:
		mode, decided = "off", skip("excluded-namespace", "skipped: namespace %s is excluded", in.Namespace)
	case where == nil:
		decided = warn("namespace-unreadable", "namespace %s cannot be read: %v", in.Namespace, cmp.Or(err, errMissing))
		decided.label = "error"
		return "enforce", decided
	case mode == "off":
		decided = skip("out-of-scope", "skipped: the namespace does not have the label %s, or has it with the value off", label)
	case mode != "enforce" && mode != "warn" && mode != "audit":
		decided = skip("unknown-mode", "skipped: label %s of the namespace has the invalid value %q", label, mode)
		mode = "off"
	case in.SubResource != "" || in.Object == nil:
		decided = skip("other-operation", "skipped: the policy does not evaluate this request")
	default:
		return mode, at.decide(ctx, r, in, where)
	}
	decided.label = "skipped"
	return mode, decided
}

var errMissing = errors.New("it does not exist")

func (n *namespace) mode(label string) string { return cmp.Or(n.Metadata.Labels[label], "off") }

// under is what a decision does in a mode: only enforce patches and denies.
func (d *decision) under(mode, policy string) response {
	out := response{Allowed: true, Notes: d.notes}
	out.Notes.Mode, out.Notes.Reason, out.Notes.Decision = mode, d.reason.Code, cmp.Or(d.label, "allowed")
	effects := d.warnings
	switch {
	case d.status != 0 && mode == "enforce":
		out.Notes.Decision, out.Allowed = "denied", false
		out.Status = &status{d.status, sentence(policy, mode, d.reason)}
	case d.status != 0:
		out.Notes.Decision = "would-deny"
		effects = append([]reason{{d.reason.Code, "would deny this request: " + d.reason.Text}}, effects...)
	case len(d.changes) > 0 && mode == "enforce":
		operations := make([]operation, len(d.changes))
		for i := range d.changes {
			operations[i] = d.changes[i].operation()
		}
		out.Notes.Decision, out.Patch, out.PatchType = "patched", encoded(operations), "JSONPatch"
	case len(d.changes) > 0:
		out.Notes.Decision = "would-patch"
		// Annotations only record the change of a field, which comes first.
		first := &d.changes[0]
		would := reason{first.Reason, "would set " + strings.Join(first.Path, ".") + " to " + first.New}
		effects = append([]reason{would}, effects...)
	}
	switch d.reason.Code {
	case lookupFailed, "vmi-unreadable", "instancetype-unreadable":
		out.Notes.Decision = "error"
	}
	for _, effect := range effects {
		if mode != "audit" {
			out.Warnings = append(out.Warnings, sentence(policy, mode, effect))
		}
	}
	return out
}

func sentence(policy, mode string, because reason) string {
	if mode != "enforce" {
		policy += ", " + mode
	}
	return "kubevirt-webhook (" + policy + "): " + because.Text + " [" + because.Code + "]"
}

// operation is an add, with absent parents in its value.
func (c *change) operation() operation {
	end := len(c.Path) - c.absent
	var value any = c.New
	for i := len(c.Path) - 1; i >= end; i-- {
		value = map[string]any{c.Path[i]: value}
	}
	var path jsontext.Pointer
	for _, name := range c.Path[:end] {
		path = path.AppendToken(name)
	}
	return operation{"add", path, value}
}

// report writes the audit line of a decision.
func report[T any](
	r *reviewer, at *endpoint[T], path string, in *request[T], decided *decision, out *response, took time.Duration,
) {
	name := in.Name
	if name == "" && in.Object != nil {
		meta := any(in.Object).(interface{ meta() *metadata }).meta()
		name = cmp.Or(meta.Name, meta.GenerateName)
	}
	line := record{
		Kind: "decision", Schema: schema, Time: time.Now().UTC().Format(timeFormat), UID: in.UID, Endpoint: path,
		Operation: in.Operation, Object: audited{at.kind, in.Namespace, name}, User: in.UserInfo.Username,
		DryRun: in.DryRun, Mode: out.Notes.Mode, Decision: out.Notes.Decision, Reasons: []reason{decided.reason},
		Changes: decided.changes, DurationMs: math.Round(took.Seconds()*1e6) / 1e3,
	}
	if decided.status != 0 {
		line.Message = &decided.reason.Text
	}
	r.audit.write(&line)
}
