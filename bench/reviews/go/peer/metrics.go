package main

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of the request path, named as kubevirt-webhook's.
type metrics struct {
	registry                    *prometheus.Registry
	requests, decisions, panics *prometheus.CounterVec
	latency                     *prometheus.HistogramVec
	inFlight                    prometheus.Gauge
	dropped                     prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "kubevirt_webhook", Name: name, Help: help}, labels)
	}
	dropped := counter("audit_dropped_total", "Audit lines that could not be written, or that were not read in time.")
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("requests_total", "HTTP requests at an endpoint by status code.", "webhook", "code"),
		decisions: counter("decisions_total", "Evaluated requests; dry_run distinguishes those that change nothing.",
			"policy", "resource", "mode", "decision", "reason", "dry_run"),
		panics: counter("panics_total", "Requests that met an internal error; each has a line in the log.", "webhook"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kubevirt_webhook", Name: "latency_seconds", Help: "Time from a request's headers to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"webhook"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "kubevirt_webhook", Name: "requests_in_flight", Help: "Requests in progress.",
		}),
		dropped: dropped.WithLabelValues(),
	}
	m.registry.MustRegister(m.requests, m.decisions, m.panics, m.latency, m.inFlight, dropped)
	return m
}
