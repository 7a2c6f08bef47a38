// Writes how kubectl reads YAML: one line of JSON for each text, with the value that the API server gets, or the error of
// sigs.k8s.io/yaml. The reading is that of k8s.io/apimachinery/pkg/util/yaml, by which kubectl reads manifests.
//
// It needs a module of its own, with the versions that apimachinery requires:
//
//	directory=$(mktemp -d) && cp hack/kubectl_yaml/main.go "$directory"
//	(cd "$directory" && go mod init table && go get sigs.k8s.io/yaml@v1.6.0 go.yaml.in/yaml/v2@v2.4.4 \
//	  sigs.k8s.io/json@v0.0.0-20250730193827-2d320260d730 && go run .) | gzip -9n > tests/data/kubectl-yaml.jsonl.gz
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What YAML 1.1 or 1.2 takes for more than text, and what is nearly that.
var words = []string{
	"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nil", "none", "t", "f", "ok", "enabled", "disabled",
}

var scalars = []string{
	"", "~", "~~", "NULL", "null", "=", "<<", "-", "+", ".", "..", "...", "_", "__", "0", "00", "000", "-0", "+0", "0_", "_0",
	"1", "12", "+5", "-5", "1_000", "1__0", "1_", "-1_0", "+1_0", "1_000.5_0", "1_0e1_0", "08", "09", "0o", "0o17", "0O17", "0o8",
	"-0o17", "+0o17", "0755", "0644", "-017", "+017", "0_7", "0x", "0x1F", "0X1f", "-0x1f", "+0x1f", "0x_1", "0x1g", "0b", "0b101",
	"0B101", "-0b101", "+0b101", "0b1_0", "0b2", "--1", "+-1", "1-", "1:30", "1:30:00", "190:20:30", "-1:30", "1:30.5", "01:30",
	"22:22", "0:0", "2026-01-31", "2026-1-3", "2026-01-31T12:00:00Z", "2026-01-31t12:00:00.5+01:00", "2026-01-31 12:00:00",
	"2001-12-14 21:59:43.10 -5", "2026-13-31", "12:00:00Z", "1.5", ".5", "-.5", "+.5", "1.", "-1.", "1.0", "-1.0", "0.0", "-0.0",
	"1.10", "1.2.3", "1e3", "1E3", "1e+3", "1e-3", "-1e3", "1.5e3", ".5e1", "1.e1", "1e", "e1", "1e1.5", "1e999", "-1e999", "1e-999",
	".1_0", "._1", "1._0", "1e6", "1e21", "1e20", "123456789012345678901234567890", "0.1", "1e-7", "3.14", "6.02e23", "0x1p4", "1p4",
	".inf", ".Inf", ".INF", "+.inf", "-.inf", "-.Inf", "+.INF", ".iNF", "inf", "Inf", "-inf", "+Inf", "Infinity", ".infinity", ".nan",
	".NaN", ".NAN", ".Nan", "nan", "NaN", "-.nan", "+.nan", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
	"-9223372036854775809", "+9223372036854775807", "+9223372036854775808", "18446744073709551615", "18446744073709551616",
	"+18446744073709551615", "0x7fffffffffffffff", "0xffffffffffffffff", "0x10000000000000000", "-0x8000000000000000",
	"-0x8000000000000001", "0777777777777777777777", "01777777777777777777777", "02000000000000000000000", "-01777777777777777777777",
	"1Gi", "100m", "1k", "1.5Gi", "0Gi", "1e3Gi", "12e", "1/2", "1,000", "1,5", "$1", "a_b", "a:b", "v1", "1a", "0a", "08a", "0xg",
	"0o779", "0b12", "1.8.4", "1.8", "01.5", "00.5", "08.5", "0_8", "-08", "+08", "1 2", "on off", "true false", "yes.", "no,", "0.",
	"00000000000000000000000000000000000000000000000000000000000000000000000000000001",
	"1000000000000000000000000000000000000000000000000000000000000000000000000000000000",
	"0x0000000000000000000000000000000000000000000000000000000000000000000000000000000001",
	"4503599627370497.5", "9007199254740993", "9007199254740993.0", "9.2233720368547748e18", "9223372036854774784.0",
	"9223372036854775807.0", "9223372036854775808.0", "-9223372036854775808.0", "1.7976931348623157e308", "1.7976931348623159e308",
	"5e-324", "1e-324", "\u0661", "1\u0660", "\uff11", "caf\u00e9", "\u00bd",
}

var tagged = []string{
	"! true", "! 12", "! off", "!!str off", "!!str 12", "!!str ~", "!!str", "!!bool yes", "!!bool off", "!!bool 'on'", "!!bool \"true\"",
	"!!bool tRUE", "!!bool 1", "!!bool x", "!!int 12", "!!int '12'", "!!int 0o17", "!!int 1.0", "!!int 1.5", "!!int 1e3", "!!int x",
	"!!int off", "!!float 3", "!!float '3'", "!!float 1.5", "!!float 1e3", "!!float x", "!!float .inf", "!!float 9223372036854775808",
	"!!float 18446744073709551616", "!!null ~", "!!null ''", "!!null x", "!!null null", "!!null 0", "!!binary aGk=", "!!binary x!",
	"!!timestamp 2026-01-31", "!mine off", "!!set {a}", "!!omap []", "!!map {a: !!seq [off]}", "!!merge x",
	"'off'", "\"off\"", "'12'", "\"1.0\"", "'~'", "'null'", "''", "\"\"", "|\n  off\n", ">\n  off\n", "|-\n  off\n", ">-\n  12\n",
}

var documents = []string{
	// Keys.
	"off: 1", "on: 1", "y: 1", "n: 1", "yes: 1", "No: 1", "true: 1", "null: 1", "~: 1", "8080: x", "1.5: x", "1e3: x", "0x1f: x", ".inf: x",
	"2026-01-31: x", "'off': 1", "\"y\": 1", "! on: 1", "!!str on: 1", "? on\n: 1", "? [a]\n: 1", "? {a: 1}\n: 1", "{off: 1, a: 2}", "{a, b}",
	"m: {off: 1}", "m: {on: 1}", "m: {y: 1}", "m: {N: 1}", "m: {No: 1}", "m:\n  ? on\n  : 1", "- off: 1", "- {y: 1}", "m: [{n: 1}]",
	"yES: 1", "1:30: x", "tRUE: 1", "1.2.3: x", "<<: {a: 1}",
	// A key that is written twice.
	"a: 1\na: 2", "{a: 1, a: 2}", "a: 1\n'a': 2", "on: 1\ntrue: 2", "a: {b: 1, b: 2}", "a: {b: 1}\na: {c: 1}",
	// Merge keys.
	"x: &x {b: 1, c: 2}\nz: {<<: *x}", "x: &x {b: 1, c: 2}\nz: {<<: *x, b: 5, d: 6}", "x: &x {b: 1, c: 2}\nz: {d: 6, <<: *x}",
	"x: &x {b: 1, c: 2}\nz: {b: 5, <<: *x}", "x: &x {b: 1}\nw: &w {b: 9, e: 3}\nz: {<<: [*x, *w]}",
	"x: &x {b: 1}\nw: &w {b: 9, e: 3}\nz: {<<: [*w, *x], e: 4}", "z: {<<: {f: off}}", "z: {<<: []}", "z: {'<<': 1}", "z: {\"<<\": {a: 1}}",
	"z: {<<: 1}", "z: {<<: [1]}", "z: {<<: ~}", "z: {<<: {a: 1}, <<: {b: 1}}", "x: &x [1]\nz: {<<: *x}", "z: <<", "- <<",
	"x: &x {b: {c: 1}}\nz: {<<: *x, b: {d: 1}}",
	// Anchors.
	"a: &x off\nb: *x", "a: &x 'off'\nb: *x", "a: &x {b: off}\nc: *x", "- &a 1\n- &a 2\n- *a", "a: *x", "a: &x\nb: *x", "&a {b: *a}",
	"a: &on x\nb: *on", "- &a b\n- {*a : c}", "- &a off\n- {*a : c}",
	// Other places for words.
	"[y, n, yes, no, on, off]", "- y\n- n\n- on\n- off", "off", "on", "12", "a: off # why", "a: off#why", "a: [off,on]", "{a: off}",
	"a:\n  off", "a:\n  off\n  on", "a: off\n  ", "a: 'on'\nb: on", "a: \"\\x6fff\"", "a: off\\", "a:off", "a: -off", "a: - off",
	"labels:\n  kubevirt-webhook.github.io/defaults: off", "labels:\n  gpu: true", "a: {b: NO, c: n0, d: nO}", "a: Y\nb: N", "",
	"# nothing", "--- off", "---\na: off", "%YAML 1.2\n---\na: off", "%YAML 1.1\n---\na: off", "a: !!str", "a: ! ''", "a:   ", "a: [,]",
	"a: [1,,2]", "a: [1,]", "\ta: 1", "a:\t1", "a: 1\t", "a: @x", "a: `x", "a: %x", "a: b: c", "a: [", "{", "'abc", "a: \"\\ud83d\"",
}

func casings(word string) []string {
	result := []string{word, strings.ToUpper(word), strings.ToUpper(word[:1]) + word[1:]}
	if len(word) > 1 {
		result = append(result, word[:1]+strings.ToUpper(word[1:]), word[:len(word)-1]+strings.ToUpper(word[len(word)-1:]))
	}
	return result
}

// Texts of what numbers consist of: some are numbers, and some nearly so.
func random(count int) []string {
	source := rand.New(rand.NewSource(1))
	result := []string{}
	for len(result) < count {
		text := []string{"", "", "-", "+", "."}[source.Intn(5)] + []string{"", "0", "0x", "0o", "0b", "1", "9"}[source.Intn(7)]
		for range source.Intn(8) {
			text += string("0011789aeEfx_..+-:bo"[source.Intn(20)])
		}
		result = append(result, text)
	}
	return result
}

func read(text string) (value any, err error) {
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	// As in unstructured objects: what does not fit int64 is a float.
	err = kjson.UnmarshalCaseSensitivePreserveInts(encoded, &value)
	return value, err
}

func main() {
	values := []string{}
	for _, word := range words {
		values = append(values, casings(word)...)
	}
	values = append(append(append(values, scalars...), tagged...), random(3000)...)
	texts := []string{}
	for _, value := range values {
		texts = append(texts, "a: "+value)
	}
	seen := map[string]bool{}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for _, text := range append(texts, documents...) {
		if seen[text] {
			continue
		}
		seen[text] = true
		line := map[string]any{"yaml": text}
		if value, err := read(text); err != nil {
			line["error"] = err.Error()
		} else {
			line["value"] = value
		}
		if err := encoder.Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
