// Command controllerruntime is the webhook as kubebuilder's documentation teaches it.
//
// Each handler decodes the object with the library's decoder, changes it, encodes it, and lets the library compute the
// patch from the two encodings.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"kubevirt-webhook.github.io/bench/reviews/internal/kubevirt"
	"kubevirt-webhook.github.io/bench/reviews/internal/names"
)

// handlers has a method for each endpoint.
type handlers struct{ decoder admission.Decoder }

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot serve:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT of the webhooks")
	cert := flag.String("tls-cert", "", "PEM file of the certificate")
	key := flag.String("tls-key", "", "PEM file of its key, in the same directory")
	flag.Parse()

	host, service, err := net.SplitHostPort(*listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(service)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	if err := kubevirt.AddToScheme(scheme); err != nil {
		return err
	}
	log.SetLogger(logr.Discard()) // No log line for any request: in this server's favour.
	server := webhook.NewServer(webhook.Options{
		Host:     host,
		Port:     port,
		CertDir:  filepath.Dir(*cert),
		CertName: filepath.Base(*cert),
		KeyName:  filepath.Base(*key),
		// What the library's own scaffolding does, because of attacks on HTTP/2.
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }},
	})
	on := handlers{admission.NewDecoder(scheme)}
	server.Register(names.PodPath, &webhook.Admission{Handler: admission.HandlerFunc(on.pod)})
	server.Register(names.VMPath, &webhook.Admission{Handler: admission.HandlerFunc(on.virtualMachine)})
	server.Register(names.MigrationPath, &webhook.Admission{Handler: admission.HandlerFunc(on.migration)})
	server.Register(names.ReadyPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return server.Start(signals.SetupSignalHandler())
}

func (h handlers) pod(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := h.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	owner := metav1.GetControllerOf(pod)
	if pod.Labels[names.AppLabel] != names.Launcher || owner == nil || owner.Kind != "VirtualMachineInstance" {
		return admission.Allowed("")
	}
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != names.DefaultScheduler {
		return admission.Allowed("")
	}
	pod.Spec.SchedulerName = names.Scheduler
	mark(&pod.ObjectMeta)
	return patched(request, pod)
}

func (h handlers) virtualMachine(_ context.Context, request admission.Request) admission.Response {
	vm := &kubevirt.VirtualMachine{}
	if err := h.decoder.Decode(request, vm); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if vm.Spec.Template == nil || vm.Spec.Template.Spec.SchedulerName != "" {
		return admission.Allowed("")
	}
	vm.Spec.Template.Spec.SchedulerName = names.Scheduler
	mark(&vm.ObjectMeta)
	mark(&vm.Spec.Template.ObjectMeta)
	return patched(request, vm)
}

func (h handlers) migration(_ context.Context, request admission.Request) admission.Response {
	migration := &kubevirt.VirtualMachineInstanceMigration{}
	if err := h.decoder.Decode(request, migration); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if refusal := kubevirt.SelectorError(migration.Spec.AddedNodeSelector); refusal != "" {
		return admission.Denied(refusal)
	}
	return admission.Allowed("")
}

func mark(meta *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(meta, names.Mark, names.Scheduler) }

func patched(request admission.Request, object any) admission.Response {
	encoded, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, encoded)
}
