// Package serve is the command line and the TLS listener of the servers that stand on net/http alone.
package serve

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"kubevirt-webhook.github.io/bench/reviews/internal/names"
)

// MaxBody is the largest review that a server reads.
const MaxBody = 7 << 20

// Main serves the handlers, by path, until the process is stopped.
func Main(handlers map[string]http.Handler) {
	listen := flag.String("listen", "127.0.0.1:0", "HOST:PORT of the webhooks")
	cert := flag.String("tls-cert", "", "PEM file of the certificate")
	key := flag.String("tls-key", "", "PEM file of its key")
	flag.Parse()

	mux := http.NewServeMux()
	mux.HandleFunc(names.ReadyPath, func(http.ResponseWriter, *http.Request) {})
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	server := &http.Server{
		Addr:              *listen,
		Handler:           mux,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       120 * time.Second,
	}
	if err := server.ListenAndServeTLS(*cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "cannot serve:", err)
		os.Exit(1)
	}
}

// Body reads a review; if it can't, it has answered and ok is false.
func Body(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		http.Error(w, "the review can't be read: "+err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return body, true
}

// Answer writes a review's answer.
func Answer(w http.ResponseWriter, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // The client is gone if this fails.
}
