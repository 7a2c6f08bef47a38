// Writes which proxy Go's HTTP client takes for a URL, with many settings of the environment: one line of JSON for each
// environment, with the answer for every URL: the proxy, "" for none, or "error".
//
//	go run hack/proxies/main.go | gzip -9n > tests/data/proxies.jsonl.gz
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

var urls = []string{
	"https://localhost:6443", "https://LOCALHOST:6443", "https://localhost.:6443", "https://a.localhost", "http://localhost",
	"https://127.0.0.1:6443", "https://127.8.9.10", "https://[::1]:6443", "https://[::ffff:127.0.0.1]:443", "https://0.0.0.0",
	"https://172.30.0.1:443", "https://172.30.0.1:6443", "https://172.31.0.1", "https://10.0.0.7", "http://10.0.0.7:8080",
	"https://10.1.2.3:6443", "https://192.168.1.1", "https://[fd00::1]:443", "https://[fd00::1]:6443", "https://[fd01::1]",
	"https://[fe80::1%25eth0]:6443", "https://[fe80::1]", "https://[::ffff:172.30.0.1]:443", "https://[::ffff:ac1e:1]",
	"https://example.com", "https://example.com:443", "https://example.com:6443", "https://EXAMPLE.com", "https://example.com.",
	"https://api.example.com", "https://api.example.com:6443", "https://a.b.example.com", "https://notexample.com",
	"https://example.org", "https://com", "https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local:443",
	"http://example.com", "http://example.com:80", "http://api.example.com:8080", "https://bücher.example", "https://xn--bcher-kva.example",
	"https://api.bücher.example", "https://BÜCHER.example", "https://under_score.example", "https://user:secret@example.com:6443",
	"https://user@localhost:6443", "wss://example.com", "ftp://example.com", "HTTPS://example.com",
	"https://example.com/path?x=1", "https://1.2.3", "https://1.2.3.4.5", "https://010.0.0.7", "https://fd00",
}

var entries = []string{
	"", " ", ",", "*", " * ", "*,example.com", "example.com,*", "*.", ".", "*.*", "**", "*example.com",
	"localhost", "127.0.0.1", "::1", "172.30.0.0/16", " 172.30.0.0/16 ", "172.30.0.1/16", "172.30.0.0/016", "172.30.0.0/33",
	"172.30.0.0/255.255.0.0", "172.30.0.0/", "172.30.0.0/-1", "172.30.0.0/+8", "172.30/16", "0.0.0.0/0", "::/0", "10.0.0.0/8",
	"10.0.0.7", "10.0.0.7:443", "10.0.0.7:8080", "10.0.0.7:", "010.0.0.7", "10.0.0.07", "10.0.0.7/32", "fd00::/8", "fd00::1/128",
	"fd00::1", "[fd00::1]", "[fd00::1]:443", "[fd00::1]:6443", "fd00::1:443", "FD00::1", "fe80::/10", "fe80::1", "fe80::1%eth0",
	"[fe80::1%eth0]:6443", "::ffff:172.30.0.0/112", "::ffff:172.30.0.1", "::ffff:0:0/96", "::ffff:0:0/95", "[::ffff:ac1e:1]:443",
	"example.com", "EXAMPLE.COM", "example.com.", ".example.com", "*.example.com", "example.com:443", "example.com:6443",
	".example.com:6443", "*.example.com:6443", "example.com:", ":443", ":", "example.com:80:90", "[example.com]", "[example.com]:443",
	"http://example.com", "https://example.com:443", "com", ".com", "*.com", "..example.com", ".svc", ".cluster.local", "svc",
	"bücher.example", ".bücher.example", "*.bücher.example:443", "xn--bcher-kva.example", "BÜCHER.EXAMPLE", "ü..example", "under_score.example",
	"example.com example.org", "example.com;example.org", "example.com/path", "[", "]", "[]", "[]:443", "[::1", "::1]", "%", "a%b",
	"1.2.3", "1.2.3.4.5", ".1.2.3.4", "127.0.0.0/8", "\texample.com\t", "0", "00", "user@example.com",
}

func environments() []map[string]string {
	const secure, plain = "http://proxy.example:3128", "http://plain.example:3129"
	result := []map[string]string{{}, {"NO_PROXY": "example.com"}}
	for _, variables := range []string{
		"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY HTTP_PROXY", "https_proxy http_proxy",
		"HTTPS_PROXY https_proxy", "HTTP_PROXY REQUEST_METHOD", "http_proxy REQUEST_METHOD", "HTTPS_PROXY REQUEST_METHOD",
		"ALL_PROXY", "all_proxy", "HTTPS_PROXY NO_PROXY no_proxy", "HTTPS_PROXY no_proxy", "HTTPS_PROXY NO_PROXY",
	} {
		environment := map[string]string{}
		for _, name := range strings.Fields(variables) {
			environment[name] = map[string]string{
				"HTTPS_PROXY": secure, "https_proxy": "https://lower.example:3130", "HTTP_PROXY": plain, "http_proxy": "plain.example:3131",
				"REQUEST_METHOD": "GET", "NO_PROXY": "example.com", "no_proxy": "10.0.0.0/8", "ALL_PROXY": secure, "all_proxy": secure,
			}[name]
		}
		result = append(result, environment)
	}
	result = append(result, map[string]string{"HTTPS_PROXY": "", "https_proxy": secure}, map[string]string{"HTTPS_PROXY": secure, "NO_PROXY": "", "no_proxy": "com"})
	for _, proxy := range []string{
		"proxy.example", "proxy.example:3128", "http://proxy.example", "https://proxy.example:1", "http://user:secret@proxy.example:3128",
		"user:secret@proxy.example:3128", "10.0.0.1:3128", "[fd00::2]:3128", "http://[fd00::2]:3128", "http://proxy.example:3128/",
		"localhost:3128", "HTTP://proxy.example:3128",
	} {
		result = append(result, map[string]string{"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy})
	}
	with := func(exceptions string) {
		result = append(result, map[string]string{"HTTPS_PROXY": secure, "HTTP_PROXY": plain, "NO_PROXY": exceptions})
	}
	for _, entry := range entries {
		with(entry)
	}
	random := rand.New(rand.NewSource(1))
	for range 100 {
		several := []string{}
		for range 2 + random.Intn(3) {
			several = append(several, entries[random.Intn(len(entries))])
		}
		with(strings.Join(several, ","))
	}
	// As OLM sets them for operators of OpenShift.
	with(".cluster.local,.svc,10.0.0.0/16,10.128.0.0/14,127.0.0.1,169.254.169.254,172.30.0.0/16,api-int.example.com,localhost")
	return result
}

func answers() map[string]string {
	result := map[string]string{}
	for _, text := range urls {
		target, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target})
		switch {
		case err != nil:
			result[text] = "error"
		case proxy != nil:
			result[text] = proxy.String()
		default:
			result[text] = ""
		}
	}
	return result
}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if len(os.Args) > 1 {
		out.Encode(answers())
		return
	}
	for _, environment := range environments() {
		// The environment is read once in a process.
		child := exec.Command(os.Args[0], "answers")
		child.Env, child.Stderr = []string{}, os.Stderr
		for name, value := range environment {
			child.Env = append(child.Env, name+"="+value)
		}
		printed, err := child.Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, environment, err)
			os.Exit(1)
		}
		out.Encode(map[string]any{"environment": environment, "answers": json.RawMessage(printed)})
	}
}
