package main

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of the request path, named as kubevirt-webhook's.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	panics    *prometheus.CounterVec
	inFlight  prometheus.Gauge
	dropped   prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_webhook_requests_total", Help: "HTTP requests at an endpoint by status code.",
		}, []string{"webhook", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubevirt_webhook_latency_seconds", Help: "Time from a request's headers to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"webhook"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_webhook_decisions_total",
			Help: "Evaluated requests; dry_run distinguishes those that change nothing.",
		}, []string{"policy", "resource", "mode", "decision", "reason", "dry_run"}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_webhook_panics_total",
			Help: "Requests that met an internal error; each has a line in the log.",
		}, []string{"webhook"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubevirt_webhook_requests_in_flight", Help: "Requests in progress.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubevirt_webhook_audit_dropped_total",
			Help: "Audit lines that could not be written, or that were not read in time.",
		}),
	}
	m.registry.MustRegister(m.requests, m.latency, m.decisions, m.panics, m.inFlight, m.dropped)
	return m
}
