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
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	domain      = "kubevirt-webhook.github.io/"
	maxBody     = 7 << 20
	maxInFlight = 64
	mediaType   = "application/json"

	// defaultTimeout counts where the API server names none; of any, a tenth is kept for the way back.
	defaultTimeout = 3 * time.Second
	maxTimeout     = 30 * time.Second
)

// The API server writes no name twice, as the same option of encoding/json has it.
var decoding = jsontext.AllowDuplicateNames(true)

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

// metadata has the labels and annotations that decisions depend on, and not maps of all.
type metadata struct {
	Name              string       `json:"name"`
	GenerateName      string       `json:"generateName"`
	DeletionTimestamp string       `json:"deletionTimestamp"`
	Labels            labels       `json:"labels"`
	Annotations       *annotations `json:"annotations"`
	Owners            []owner      `json:"ownerReferences"`
}

type labels struct {
	App string `json:"'kubevirt.io'"`
}

type annotations struct {
	Injected       string  `json:"'kubevirt-webhook.github.io/injected-scheduler'"`
	Evacuation     *string `json:"'kubevirt.io/evacuationMigration'"`
	WorkloadUpdate *string `json:"'kubevirt.io/workloadUpdateMigration'"`
}

type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// view is the part of an object that a policy reads.
type view interface{ meta() *metadata }

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID         string   `json:"uid"`
	Allowed     bool     `json:"allowed"`
	Status      *status  `json:"status,omitzero"`
	Patch       []byte   `json:"patch,omitzero"`
	PatchType   string   `json:"patchType,omitzero"`
	Warnings    []string `json:"warnings,omitzero"`
	Annotations notes    `json:"auditAnnotations"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// notes are audit annotations.
type notes struct {
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

// change is one value that a policy writes; the last so many names of its path do not exist yet.
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
	denied   int // The HTTP status of a denial; 0: allowed.
	warnings []reason
	notes    notes
	label    string // In place of what follows from the rest.
}

func skip(code, text string) decision { return decision{reason: reason{code, text}} }

// outside is the decision on what no policy looks at.
func outside(code, text string) decision {
	return decision{reason: reason{code, text}, label: "skipped"}
}

func warn(code, text string) decision {
	because := reason{code, text}
	return decision{reason: because, warnings: []reason{because}}
}

func deny(status int, code, text string) decision {
	return decision{reason: reason{code, text}, denied: status}
}

// endpoint is a path and the policy behind it.
type endpoint[T any] struct {
	path, policy, resource, kind string
	decide                       func(ctx context.Context, r *reviewer, in *request[T], where *namespace) decision
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
	handle(mux, r, endpoint[pod]{"/mutate/scheduling/pods/enforce", "scheduling", "pods", "Pod", schedulePod})
	handle(mux, r, endpoint[virtualMachine]{
		"/mutate/scheduling/virtualmachines/enforce", "scheduling", "virtualmachines", "VirtualMachine", scheduleVM,
	})
	const migrations, kind = "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
	handle(mux, r, endpoint[migration]{"/validate/migration/" + migrations + "/enforce", "migration", migrations, kind, validateMigration})
	handle(mux, r, endpoint[migration]{"/mutate/migration/" + migrations + "/enforce", "migration", migrations, kind, warnOfMigration})
	return mux
}

// httpError is answered instead of a review.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func handle[T any](mux *http.ServeMux, r *reviewer, at endpoint[T]) {
	latency := r.metrics.latency.WithLabelValues(at.path)
	count := func(status int) { r.metrics.requests.WithLabelValues(at.path, strconv.Itoa(status)).Inc() }
	mux.HandleFunc(at.path, func(w http.ResponseWriter, request *http.Request) {
		start := time.Now()
		r.metrics.inFlight.Inc()
		defer func() {
			if caught := recover(); caught != nil {
				r.metrics.panics.WithLabelValues(at.path).Inc()
				slog.Error("internal error while a request was answered", "path", at.path, "error", caught, "stack", string(debug.Stack()))
				count(http.StatusInternalServerError)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
			r.metrics.inFlight.Dec()
			latency.Observe(time.Since(start).Seconds())
		}()
		answer, err := serve(w, request, r, &at)
		if refused := (*httpError)(nil); errors.As(err, &refused) {
			count(refused.status)
			http.Error(w, refused.text, refused.status)
			return
		} else if err != nil {
			panic(err)
		}
		count(http.StatusOK)
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write(answer) // The client is gone if this fails.
	})
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serve answers one review within its limits.
func serve[T any](w http.ResponseWriter, request *http.Request, r *reviewer, at *endpoint[T]) ([]byte, error) {
	if request.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &httpError{http.StatusMethodNotAllowed, "POST an AdmissionReview"}
	}
	if sent := request.Header.Get("Content-Type"); sent != mediaType {
		if kind, _, _ := mime.ParseMediaType(sent); kind != mediaType {
			return nil, &httpError{http.StatusUnsupportedMediaType, "send " + mediaType}
		}
	}
	ctx, cancel := context.WithTimeout(request.Context(), timeout(request)*9/10)
	defer cancel()
	select {
	case r.inFlight <- struct{}{}:
		defer func() { <-r.inFlight }()
	case <-ctx.Done():
		return nil, &httpError{http.StatusTooManyRequests, "too many reviews in progress"}
	}
	body := buffers.Get().(*bytes.Buffer)
	body.Reset()
	defer buffers.Put(body)
	body.Grow(int(min(max(request.ContentLength, 0), maxBody)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, request.Body, maxBody)); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, &httpError{http.StatusRequestEntityTooLarge, "the review is too large"}
		}
		return nil, &httpError{http.StatusBadRequest, "the review cannot be read: " + err.Error()}
	}
	start := time.Now()
	var in review[T]
	if err := json.Unmarshal(body.Bytes(), &in, decoding); err != nil {
		return nil, &httpError{http.StatusBadRequest, "not an AdmissionReview of a " + at.kind + ": " + err.Error()}
	}
	if in.Request == nil || in.Request.UID == "" {
		return nil, &httpError{http.StatusBadRequest, "an AdmissionReview without a request"}
	}
	mode, decided := evaluate(ctx, r, at, in.Request)
	out, err := r.respond(at.policy, mode, &decided)
	if err != nil {
		return nil, err
	}
	out.UID = in.Request.UID
	encoded, err := json.Marshal(answer{in.APIVersion, in.Kind, out})
	r.metrics.decisions.WithLabelValues(
		at.policy, at.resource, mode, out.Annotations.Decision, decided.reason.Code, strconv.FormatBool(in.Request.DryRun),
	).Inc()
	report(r, at, in.Request, mode, &decided, &out, time.Since(start))
	return encoded, err
}

func timeout(request *http.Request) time.Duration {
	given, err := time.ParseDuration(request.URL.Query().Get("timeout"))
	if err != nil || given <= 0 {
		return defaultTimeout
	}
	return min(given, maxTimeout)
}

// evaluate finds the namespace's mode, and decides.
func evaluate[T any](ctx context.Context, r *reviewer, at *endpoint[T], in *request[T]) (mode string, _ decision) {
	if r.cluster.excluded[in.Namespace] {
		return "off", outside("excluded-namespace", "skipped: namespace "+in.Namespace+" is excluded")
	}
	label, place := domain+at.policy, key{name: in.Namespace}
	where, err := r.cluster.namespaces.cached(ctx, place)
	if err == nil && where != nil && where.mode(label) == "off" {
		where, err = r.cluster.namespaces.get(ctx, place) // The watch may be late.
	}
	switch {
	case err != nil:
		return "enforce", unreadable(at.kind, "namespace "+in.Namespace+" cannot be read: "+err.Error())
	case where == nil:
		return "enforce", unreadable(at.kind, "namespace "+in.Namespace+" cannot be read: it does not exist")
	}
	mode = where.mode(label)
	switch mode {
	case "off":
		return mode, outside("out-of-scope", "skipped: the namespace does not have the label "+label+", or has it with the value off")
	case "enforce", "warn", "audit":
	default:
		return "off", outside("unknown-mode", fmt.Sprintf("skipped: label %s of the namespace has the invalid value %q", label, mode))
	}
	if in.SubResource != "" || in.Object == nil {
		return mode, outside("other-operation", "skipped: the policy does not evaluate this request")
	}
	return mode, at.decide(ctx, r, in, where)
}

func (n *namespace) mode(label string) string {
	if mode, found := n.Metadata.Labels[label]; found {
		return mode
	}
	return "off"
}

// unreadable allows what could not be evaluated, and says so.
func unreadable(kind, why string) decision {
	because := reason{"namespace-unreadable", why}
	warning := reason{because.Code, "this " + kind + " was allowed without changes: " + why}
	return decision{reason: because, warnings: []reason{warning}, label: "error"}
}

// respond is what a decision does in a mode: only enforce patches and denies.
func (r *reviewer) respond(policy, mode string, decided *decision) (out response, err error) {
	enforced := mode == "enforce"
	out.Allowed, out.Annotations = decided.denied == 0 || !enforced, decided.notes
	out.Annotations.Mode, out.Annotations.Reason, out.Annotations.Decision = mode, decided.reason.Code, decided.word(mode)
	warnings := decided.warnings
	switch {
	case decided.denied != 0 && enforced:
		out.Status = &status{decided.denied, sentence(policy, mode, decided.reason)}
	case len(decided.changes) > 0 && enforced:
		operations := make([]operation, len(decided.changes))
		for i := range decided.changes {
			operations[i] = decided.changes[i].operation()
		}
		out.PatchType = "JSONPatch"
		if out.Patch, err = json.Marshal(operations); err != nil {
			return out, err
		}
	case mode == "warn":
		warnings = append(decided.effects(), warnings...)
	}
	if mode == "audit" {
		return out, nil
	}
	for _, warning := range warnings {
		out.Warnings = append(out.Warnings, sentence(policy, mode, warning))
	}
	return out, nil
}

// word is the decision in one word.
func (d *decision) word(mode string) string {
	enforced := mode == "enforce"
	switch {
	case d.label != "":
		return d.label
	case d.denied != 0 && enforced:
		return "denied"
	case d.denied != 0:
		return "would-deny"
	case len(d.changes) > 0 && enforced:
		return "patched"
	case len(d.changes) > 0:
		return "would-patch"
	}
	return "allowed"
}

// effects is what mode enforce would do; its annotations only record another change.
func (d *decision) effects() (would []reason) {
	if d.denied != 0 {
		return []reason{{d.reason.Code, "would deny this request: " + d.reason.Text}}
	}
	for _, each := range d.changes {
		if !strings.HasPrefix(each.Path[len(each.Path)-1], domain) {
			would = append(would, reason{each.Reason, "would set " + strings.Join(each.Path, ".") + " to " + each.New})
		}
	}
	return would
}

func sentence(policy, mode string, because reason) string {
	if mode != "enforce" {
		policy += ", " + mode
	}
	return "kubevirt-webhook (" + policy + "): " + because.Text + " [" + because.Code + "]"
}

// operation is an add, with the missing parents in its value.
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
func report[T any](r *reviewer, at *endpoint[T], in *request[T], mode string, decided *decision, out *response, took time.Duration) {
	name := in.Name
	if name == "" && in.Object != nil {
		meta := any(in.Object).(view).meta()
		name = cmp.Or(meta.Name, meta.GenerateName)
	}
	line := record{
		Kind: "decision", Schema: schema, Time: time.Now().UTC().Format(timeFormat), UID: in.UID, Endpoint: at.path,
		Operation: in.Operation, Object: audited{at.kind, in.Namespace, name}, User: in.UserInfo.Username, DryRun: in.DryRun,
		Mode: mode, Decision: out.Annotations.Decision, Reasons: []reason{decided.reason}, Changes: decided.changes,
		DurationMs: math.Round(took.Seconds()*1e6) / 1e3,
	}
	if decided.denied != 0 {
		line.Message = &decided.reason.Text
	}
	r.audit.write(&line)
}
