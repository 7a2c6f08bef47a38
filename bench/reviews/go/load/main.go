// Command load sends one AdmissionReview again and again, as kube-apiserver does, and checks every answer.
//
// It speaks HTTP/1.1 over TLS through net/http with a pool of 25 idle connections, which is what the API server's
// webhook client comes to. Either it keeps a fixed number of reviews in flight, a closed loop, so latencies at more than
// one in flight are mostly queueing; or it sends them at a fixed rate, singly or in bursts, whether or not the answers
// keep up. It only talks to the loopback interface and stops by itself. The result is one JSON object on standard output.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// idleConnections is the API server's own limit for one webhook.
const idleConnections = 25

// unanswered is how many reviews that come at a rate may wait: a server that falls so far behind is not measured.
const unanswered = 1000

// result is what the benchmark reads.
type result struct {
	Count      int     `json:"count"`       // Right answers in the measured time.
	Errors     int     `json:"errors"`      // All other outcomes in the measured time and the warm-up.
	FirstError string  `json:"first_error"` // What the first of them was.
	Warmup     int     `json:"warmup"`      // Right answers before the measured time.
	Seconds    float64 `json:"seconds"`     // The measured time.
	RPS        float64 `json:"rps"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Max        float64 `json:"max_us"`
	ServerCPU  float64 `json:"server_cpu_seconds"` // User and system time of the server in the measured time.
	ClientCPU  float64 `json:"client_cpu_seconds"` // The same of this program: near Seconds, it is the bottleneck.
}

// target is what is asked and what a right answer is.
type target struct {
	client *http.Client
	url    string
	bodies [][]byte // One is sent after the other.
	sent   atomic.Uint64
	uid    string
	patch  bool
}

// arrival is how reviews come.
type arrival struct {
	concurrency int           // Reviews in flight; 0: they come at a rate.
	burst       int           // Reviews that come at the same moment.
	pause       time.Duration // From one such moment to the next.
}

// outcome is what one worker saw.
type outcome struct {
	latencies []time.Duration
	errors    int
	first     error
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("url", "", "endpoint, on the loopback interface")
	body := flag.String("body", "", "file with the review")
	varied := flag.String("varied", "", "text of the review that is another one each time; empty: the same review is sent again")
	names := flag.Int("names", 1, "how many other texts there are, by turns")
	ca := flag.String("ca", "", "PEM file that the server's certificate is checked against")
	concurrency := flag.Int("concurrency", 1, "reviews in flight, at most 25; 0: use -rate")
	rate := flag.Int("rate", 0, "reviews per second")
	burst := flag.Int("burst", 1, "how many of them come at the same moment")
	duration := flag.Duration("duration", 2*time.Second, "measured time")
	warmup := flag.Duration("warmup", 400*time.Millisecond, "time before it, not measured")
	pid := flag.Int("pid", 0, "process ID of the server")
	patch := flag.Bool("patch", false, "a right answer has a patch; otherwise it has none")
	flag.Parse()

	how := arrival{concurrency: *concurrency, burst: *burst}
	switch {
	case *concurrency < 0 || *concurrency > idleConnections:
		return fmt.Errorf("-concurrency must be 0 to %d, not %d", idleConnections, *concurrency)
	case (*concurrency > 0) == (*rate > 0):
		return errors.New("-concurrency or -rate must be above 0, and only one of them")
	case *burst < 1 || *burst > unanswered:
		return fmt.Errorf("-burst must be 1 to %d, not %d", unanswered, *burst)
	case *rate > 0:
		how.pause = time.Second * time.Duration(*burst) / time.Duration(*rate)
	}
	if *duration <= 0 || *duration+*warmup > time.Minute {
		return errors.New("-duration and -warmup must stay within a minute")
	}
	to, err := newTarget(*address, *body, *ca, *patch)
	if err == nil && *varied != "" {
		err = to.vary(*varied, *names)
	}
	if err != nil {
		return err
	}
	serverClock := processClock(*pid)
	ownClock := processClock(os.Getpid())
	if _, err := cpuSeconds(serverClock); err != nil {
		return fmt.Errorf("the CPU time of process %d can't be read: %w", *pid, err)
	}

	warm := to.send(how, *warmup)
	serverBefore, _ := cpuSeconds(serverClock)
	ownBefore, _ := cpuSeconds(ownClock)
	start := time.Now()
	seen := to.send(how, *duration)
	seconds := time.Since(start).Seconds()
	ownAfter, _ := cpuSeconds(ownClock)
	serverAfter, err := cpuSeconds(serverClock)
	if err != nil {
		return fmt.Errorf("the server, process %d, is gone: %w", *pid, err)
	}

	out := result{
		Count:     len(seen.latencies),
		Errors:    warm.errors + seen.errors,
		Warmup:    len(warm.latencies),
		Seconds:   seconds,
		RPS:       float64(len(seen.latencies)) / seconds,
		ServerCPU: serverAfter - serverBefore,
		ClientCPU: ownAfter - ownBefore,
	}
	for _, err := range []error{seen.first, warm.first} {
		if err != nil {
			out.FirstError = err.Error()
		}
	}
	slices.Sort(seen.latencies)
	out.P50, out.P99, out.Max = quantile(seen.latencies, 0.5), quantile(seen.latencies, 0.99), quantile(seen.latencies, 1)
	return json.NewEncoder(os.Stdout).Encode(out)
}

func newTarget(address, body, ca string, patch bool) (*target, error) {
	endpoint, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(endpoint.Hostname()); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("-url must name a loopback address, not %q", endpoint.Hostname())
	}
	review, err := os.ReadFile(body)
	if err != nil {
		return nil, err
	}
	var sent struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(review, &sent); err != nil || sent.Request.UID == "" {
		return nil, fmt.Errorf("%s is not an AdmissionReview with a request.uid: %v", body, err)
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", ca)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     90 * time.Second,
	}
	return &target{
		client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
		url:    address,
		bodies: [][]byte{review},
		uid:    sent.Request.UID,
		patch:  patch,
	}, nil
}

// vary makes so many reviews of the one that there is: a text of six letters becomes p00000, p00001 and so on.
func (t *target) vary(text string, names int) error {
	review := t.bodies[0]
	if len(text) != len("p00000") || names < 1 || names > 100_000 || !bytes.Contains(review, []byte(text)) {
		return fmt.Errorf("-varied must be a text of six letters that the review contains, and -names 1 to 100000")
	}
	t.bodies = make([][]byte, names)
	for i := range t.bodies {
		t.bodies[i] = bytes.ReplaceAll(review, []byte(text), fmt.Appendf(nil, "p%05d", i))
	}
	return nil
}

// send lets reviews come for that long, and waits for the last answer.
func (t *target) send(how arrival, duration time.Duration) outcome {
	if how.concurrency > 0 {
		return t.press(how.concurrency, duration)
	}
	return t.pour(how, duration)
}

// pour sends bursts of reviews, a pause apart.
func (t *target) pour(how arrival, duration time.Duration) outcome {
	var (
		all     outcome
		lock    sync.Mutex
		waiting sync.WaitGroup
		open    int
	)
	begin := time.Now()
	for moment := begin; moment.Before(begin.Add(duration)); moment = moment.Add(how.pause) {
		time.Sleep(time.Until(moment))
		lock.Lock()
		if open += how.burst; open > unanswered {
			all.fail(fmt.Errorf("%d reviews have no answer yet: the server does not keep up", open))
			lock.Unlock()
			break
		}
		lock.Unlock()
		for range how.burst {
			start := time.Now()
			waiting.Go(func() {
				err := t.ask()
				took := time.Since(start)
				lock.Lock()
				defer lock.Unlock()
				open--
				if err != nil {
					all.fail(err)
					return
				}
				all.latencies = append(all.latencies, took)
			})
		}
	}
	waiting.Wait()
	return all
}

// press keeps that many reviews in flight for that long.
func (t *target) press(concurrency int, duration time.Duration) outcome {
	deadline := time.Now().Add(duration)
	outcomes := make([]outcome, concurrency)
	var workers sync.WaitGroup
	for i := range outcomes {
		workers.Go(func() {
			// A refused connection fails at once: the pause keeps a dead server from being hammered.
			for start := time.Now(); start.Before(deadline); start = time.Now() {
				if err := t.ask(); err != nil {
					outcomes[i].fail(err)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				outcomes[i].latencies = append(outcomes[i].latencies, time.Since(start))
			}
		})
	}
	workers.Wait()
	var all outcome
	for _, one := range outcomes {
		all.latencies = append(all.latencies, one.latencies...)
		all.errors += one.errors
		if all.first == nil {
			all.first = one.first
		}
	}
	return all
}

func (o *outcome) fail(err error) {
	o.errors++
	if o.first == nil {
		o.first = err
	}
}

// ask sends the review once; an error says what was wrong with the answer.
func (t *target) ask() error {
	request, err := http.NewRequest(http.MethodPost, t.url, bytes.NewReader(t.bodies[t.sent.Add(1)%uint64(len(t.bodies))]))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", response.StatusCode, bytes.TrimSpace(answer[:min(len(answer), 200)]))
	}
	var got struct {
		Response struct {
			UID     string `json:"uid"`
			Allowed bool   `json:"allowed"`
			Patch   string `json:"patch"`
		} `json:"response"`
	}
	switch err := json.Unmarshal(answer, &got); {
	case err != nil:
		return fmt.Errorf("the answer is not JSON: %w", err)
	case got.Response.UID != t.uid:
		return fmt.Errorf("the answer is for uid %q, not %q", got.Response.UID, t.uid)
	case !got.Response.Allowed:
		return errors.New("the answer refuses the object")
	case (got.Response.Patch != "") != t.patch:
		return fmt.Errorf("the answer has a patch: %t; expected: %t", got.Response.Patch != "", t.patch)
	}
	return nil
}

// quantile of sorted latencies, in microseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	index := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[index].Nanoseconds()) / 1000
}

// processClock is the clock of all the CPU time that a process has used, as clock_getcpuclockid(3) makes it on Linux.
// Unlike /proc/PID/stat, which counts in hundredths of a second, it counts in nanoseconds.
func processClock(pid int) int32 {
	const scheduler = 2 // CPUCLOCK_SCHED: user and system time of all threads, also of those that have ended.
	return int32(^pid<<3 | scheduler)
}

func cpuSeconds(clock int32) (float64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0, err
	}
	return float64(now.Nano()) / float64(time.Second), nil
}
