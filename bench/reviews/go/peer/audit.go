package main

import (
	"bytes"
	"encoding/json/v2"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	schema     = "kubevirt-webhook.github.io/audit/v1alpha1"
	timeFormat = "2006-01-02T15:04:05.000000Z07:00"

	// gather is how long lines wait for others that are written with them.
	gather     = 20 * time.Millisecond
	batchBytes = 64 << 10
	maxWaiting = 10_000
)

// record is one audit line: what was decided, about which object, and why.
type record struct {
	Kind       string   `json:"kind"`
	Schema     string   `json:"schema"`
	Time       string   `json:"time"`
	UID        string   `json:"uid"`
	Endpoint   string   `json:"endpoint"`
	Operation  string   `json:"operation"`
	Object     audited  `json:"object"`
	User       string   `json:"user"`
	DryRun     bool     `json:"dryRun"`
	Mode       string   `json:"mode"`
	Decision   string   `json:"decision"`
	Reasons    []reason `json:"reasons"`
	Changes    []change `json:"changes"`
	Message    *string  `json:"message"`
	DurationMs float64  `json:"durationMs"`
	Freshness  struct{} `json:"freshness"` // By watch; what is read from files does not age.
}

type audited struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// auditLog writes lines from a goroutine of its own: a reader that is slow costs lines, never reviews.
type auditLog struct {
	out           io.Writer
	lines         chan []byte
	closing, done chan struct{}
	dropped       prometheus.Counter
}

func newAuditLog(out io.Writer, dropped prometheus.Counter) *auditLog {
	a := &auditLog{out, make(chan []byte, maxWaiting), make(chan struct{}), make(chan struct{}), dropped}
	go a.run()
	return a
}

func (a *auditLog) write(r *record) {
	if line, err := json.Marshal(r); err == nil {
		select {
		case a.lines <- append(line, '\n'):
			return
		default:
		}
	}
	a.dropped.Inc()
}

// close writes what waits. What comes later is lost.
func (a *auditLog) close() {
	close(a.closing)
	<-a.done
}

func (a *auditLog) run() {
	defer close(a.done)
	batch := make([]byte, 0, 2*batchBytes)
	for closing := false; !closing; {
		select {
		case line := <-a.lines:
			batch = append(batch, line...)
			select {
			case <-time.After(gather):
			case <-a.closing:
			}
		case <-a.closing:
			closing = true
		}
		for len(a.lines) > 0 || len(batch) > 0 {
			for len(a.lines) > 0 && len(batch) < batchBytes {
				batch = append(batch, <-a.lines...)
			}
			if written, err := a.out.Write(batch); err != nil {
				a.dropped.Add(float64(bytes.Count(batch[written:], []byte{'\n'})))
				slog.Warn("audit lines are being dropped", "error", err)
			}
			batch = batch[:0]
		}
	}
}
