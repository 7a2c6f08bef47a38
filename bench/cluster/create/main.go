// Command create creates objects through a real API server, as dry runs, and looks at every answer.
//
// Admission of a dry run is that of any other request, and the store does not grow. Objects come at a rate, singly or in
// bursts, whether or not the answers keep up; or each of some users creates one after the other. It speaks HTTP/2, as
// client-go does, talks to the loopback interface only, and stops by itself. The result is one JSON object on standard
// output: the milliseconds of each object that was created as it should be, and how many were not, by what was wrong.
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
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long one request may take: an API server gives up on a mutating one after about this long.
const patience = 35 * time.Second

// unanswered is how many requests may wait for an answer at the same time.
const unanswered = 1000

// result is what the benchmark reads.
type result struct {
	Milliseconds []float64      `json:"milliseconds"`
	Failed       map[string]int `json:"failed"`
	Seconds      float64        `json:"seconds"` // From the first request to the last answer.
}

// client creates the objects.
type client struct {
	http   *http.Client
	url    string
	bodies [][]byte // One after the other.
	sent   atomic.Uint64
	field  []string
	value  string
	wanted bool

	lock sync.Mutex
	seen result
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "create:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("url", "", "the collection to create in, on the loopback interface")
	bodies := flag.String("bodies", "", "file with the objects, a JSON object in each line; they are created by turns")
	ca := flag.String("ca", "", "PEM file that the server's certificate is checked against")
	identity := flag.String("identity", "", "PEM file with the client's certificate and key")
	users := flag.Int("users", 0, "users, each of whom creates one object after the other; 0: use -rate")
	rate := flag.Int("rate", 0, "objects in a second")
	burst := flag.Int("burst", 1, "how many of them come at the same moment")
	duration := flag.Duration("duration", 2*time.Second, "how long objects come")
	field := flag.String("field", "", "path of a field, with dots")
	value := flag.String("value", "", "what the field may have")
	wanted := flag.Bool("wanted", false, "an object is as it should be if the field has the value; else, if it does not")
	flag.Parse()

	switch {
	case (*users > 0) == (*rate > 0):
		return errors.New("-users or -rate must be above 0, and only one of them")
	case *users > unanswered || *burst < 1 || *burst > unanswered:
		return fmt.Errorf("-users and -burst must be at most %d", unanswered)
	case *duration <= 0 || *duration > 10*time.Minute:
		return errors.New("-duration must be within ten minutes")
	case *field == "" || *value == "":
		return errors.New("-field and -value must say what is looked at")
	}
	c, err := newClient(*address, *bodies, *ca, *identity)
	if err != nil {
		return err
	}
	c.field, c.value, c.wanted = strings.Split(*field, "."), *value, *wanted
	begin := time.Now()
	if *users > 0 {
		c.press(*users, begin.Add(*duration))
	} else {
		c.pour(*burst, time.Second*time.Duration(*burst)/time.Duration(*rate), begin, *duration)
	}
	c.seen.Seconds = time.Since(begin).Seconds()
	return json.NewEncoder(os.Stdout).Encode(&c.seen)
}

func newClient(address, bodies, ca, identity string) (*client, error) {
	endpoint, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(endpoint.Hostname()); endpoint.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("-url must name a loopback address, not %q", endpoint.Hostname())
	}
	if endpoint.Query().Get("dryRun") != "All" {
		return nil, errors.New("-url must ask for dry runs: dryRun=All")
	}
	content, err := os.ReadFile(bodies)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", ca)
	}
	pair, err := tls.LoadX509KeyPair(identity, identity)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
	}
	return &client{
		http:   &http.Client{Transport: transport, Timeout: patience},
		url:    address,
		bodies: bytes.Split(bytes.TrimSpace(content), []byte("\n")),
		seen:   result{Milliseconds: []float64{}, Failed: map[string]int{}},
	}, nil
}

// pour creates bursts of objects, a pause apart.
func (c *client) pour(burst int, pause time.Duration, begin time.Time, duration time.Duration) {
	var waiting sync.WaitGroup
	var open atomic.Int64
	for moment := begin; moment.Before(begin.Add(duration)); moment = moment.Add(pause) {
		time.Sleep(time.Until(moment))
		for range burst {
			if open.Add(1) > unanswered {
				open.Add(-1)
				c.fail("not sent: too many without an answer")
				continue
			}
			// From the moment at which it was to come: a client that is late does not make the server look faster.
			waiting.Go(func() {
				defer open.Add(-1)
				c.create(moment)
			})
		}
	}
	waiting.Wait()
}

// press lets each user create one object after the other.
func (c *client) press(users int, deadline time.Time) {
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			for start := time.Now(); start.Before(deadline); start = time.Now() {
				if !c.create(start) {
					time.Sleep(10 * time.Millisecond) // A refused connection fails at once.
				}
			}
		})
	}
	all.Wait()
}

// create creates one object and keeps what came of it.
func (c *client) create(start time.Time) bool {
	answered, wrong := c.ask()
	if wrong != "" {
		c.fail(wrong)
		return false
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.seen.Milliseconds = append(c.seen.Milliseconds, float64(answered.Sub(start).Microseconds())/1000)
	return true
}

func (c *client) fail(wrong string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.seen.Failed[wrong]++
}

// ask creates one object; it returns when the whole answer was there, and what is wrong with it.
func (c *client) ask() (answered time.Time, wrong string) {
	body := c.bodies[c.sent.Add(1)%uint64(len(c.bodies))]
	request, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answered, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return answered, "no answer in time"
		}
		return answered, errors.Unwrap(err).Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	answered = time.Now()
	switch {
	case err != nil:
		return answered, "half an answer"
	case response.StatusCode != http.StatusCreated:
		return answered, fmt.Sprintf("status %d", response.StatusCode)
	}
	var object any
	if err := json.Unmarshal(answer, &object); err != nil {
		return answered, "not JSON"
	}
	for _, name := range c.field {
		parent, _ := object.(map[string]any)
		object = parent[name]
	}
	if (object == c.value) != c.wanted {
		return answered, "not as it should be"
	}
	return answered, ""
}
