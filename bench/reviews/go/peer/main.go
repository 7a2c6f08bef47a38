// Command peer is a webhook in Go that does the same job as kubevirt-webhook for the reviews of the benchmark.
//
// It reads the same cluster and settings, gives the same answers at the same paths, and keeps the same counters and audit
// lines. It is written for speed with what Go has: structs of the needed fields, encoding/json/v2, pooled buffers, and
// audit lines that are written in batches. Where Kubernetes has a library, as for node affinity and taints, it is used.
//
// What it leaves out, all of it in its own favor:
//   - the other policies, updates of VMs, spread constraints, instancetypes pinned to a revision, and the endpoints for
//     namespaces that only observe;
//   - of a migration: the VM's present pod, migrations between clusters, Hyper-V, launch security, realtime, TSC, devices,
//     huge pages, RuntimeClasses, the limits and permissions that are off by default, contradictions that only an
//     affinity has, and the nodes by reason;
//   - the search for credentials and invisible characters in texts, fair turns between namespaces, another look at the
//     API server before a denial, and new settings or certificates without a restart.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// stopSeconds is how long requests in progress may take once the server is to stop.
const stopSeconds = 10

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := run(); err != nil {
		slog.Error("cannot serve", "error", err)
		os.Exit(1)
	}
}

func run() error {
	directory := flag.String("cluster-from", "", "directory with the cluster's objects")
	config := flag.String("config", "", "YAML file of the settings")
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT of the webhooks")
	opsListen := flag.String("ops-listen", "127.0.0.1:0", "HOST:PORT of health and metrics")
	cert := flag.String("tls-cert", "", "PEM file of the certificate")
	key := flag.String("tls-key", "", "PEM file of its key")
	flag.Parse()

	settings, err := readSettings(*config)
	if err != nil {
		return fmt.Errorf("%s: %w", *config, err)
	}
	cluster, err := readCluster(*directory, settings)
	if err != nil {
		return fmt.Errorf("%s: %w", *directory, err)
	}
	metrics := newMetrics()
	audit := newAuditLog(os.Stdout, metrics.dropped)
	reviewer := &reviewer{settings, cluster, metrics, audit, make(chan struct{}, maxInFlight)}
	server := &http.Server{
		Addr:              *listen,
		Handler:           reviewer.handler(),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       120 * time.Second,
	}
	ops := http.NewServeMux()
	healthy := func(http.ResponseWriter, *http.Request) {}
	ops.HandleFunc("GET /healthz", healthy)
	ops.HandleFunc("GET /readyz", healthy)
	ops.Handle("GET /metrics", promhttp.HandlerFor(metrics.registry, promhttp.HandlerOpts{}))
	opsServer := &http.Server{Addr: *opsListen, Handler: ops, ReadHeaderTimeout: 10 * time.Second}

	stopped, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer forget()
	failed := make(chan error, 2)
	go func() { failed <- server.ListenAndServeTLS(*cert, *key) }()
	go func() { failed <- opsServer.ListenAndServe() }()
	select {
	case err = <-failed:
	case <-stopped.Done():
		slog.Info("stopping")
	}
	ending, cancel := context.WithTimeout(context.Background(), stopSeconds*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ending), opsServer.Shutdown(ending))
	audit.close()
	return err
}
