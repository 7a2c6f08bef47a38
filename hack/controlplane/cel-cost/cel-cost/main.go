// cel-cost evaluates admission policies as the API server does, and prints what that costs.
//
// It reads a policy and requests as JSON from standard input. For each request it prints the cost by the API server's own
// count, which limits what a policy may cost, and how its expressions came out.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	policycel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Far beyond what the API server allows, so that every expression is evaluated to its end.
const budget = int64(apiservercel.RuntimeCELCostBudget) * 1000

type expression struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

func (e expression) GetName() string          { return e.Name }
func (e expression) GetExpression() string    { return e.Expression }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

type validation struct {
	expression
}

type mutation struct {
	JSONPatch expression `json:"jsonPatch"`
}

type policy struct {
	MatchConditions []expression `json:"matchConditions"`
	Variables       []expression `json:"variables"`
	Validations     []validation `json:"validations"`
	Mutations       []mutation   `json:"mutations"`
}

type request struct {
	Operation   admission.Operation    `json:"operation"`
	Resource    string                 `json:"resource"`
	Subresource string                 `json:"subresource"`
	User        string                 `json:"user"`
	Object      map[string]interface{} `json:"object"`
	OldObject   map[string]interface{} `json:"oldObject"`
	Namespace   *corev1.Namespace      `json:"namespace"`
}

type result struct {
	Cost   int64    `json:"cost"`
	Values []string `json:"values"`
}

func main() {
	var input struct {
		Policy   policy    `json:"policy"`
		Requests []request `json:"requests"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		fail(err)
	}
	results := []result{}
	for _, each := range input.Requests {
		found, err := evaluate(input.Policy, each)
		if err != nil {
			fail(err)
		}
		results = append(results, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func evaluate(one policy, asked request) (result, error) {
	environments := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	compiler, err := policycel.NewCompositedCompiler(environments)
	if err != nil {
		return result{}, err
	}
	declared := policycel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: len(one.Mutations) > 0}
	for _, each := range one.Variables {
		if compiled := compiler.CompileAndStoreVariable(each, declared, environment.NewExpressions); compiled.Error != nil {
			return result{}, compiled.Error
		}
	}
	var conditions, others []policycel.ExpressionAccessor
	for _, each := range one.MatchConditions {
		conditions = append(conditions, each)
	}
	for _, each := range one.Validations {
		others = append(others, each.expression)
	}
	for _, each := range one.Mutations {
		others = append(others, each.JSONPatch)
	}
	bindings := policycel.OptionalVariableBindings{Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()}
	attributes, reviewed := describe(asked)
	found := result{Values: []string{}}
	for _, expressions := range [][]policycel.ExpressionAccessor{conditions, others} {
		compiled := compiler.CompileCondition(expressions, declared, environment.NewExpressions)
		for _, each := range compiled.CompilationErrors() {
			return result{}, each
		}
		evaluations, left, err := compiled.ForInput(
			context.Background(), attributes, reviewed, bindings, asked.Namespace, budget)
		if err != nil {
			return result{}, err
		}
		found.Cost += budget - left
		isMatched := true
		for _, each := range evaluations {
			value := ""
			if each.Error != nil {
				value = each.Error.Error()
			} else {
				value = each.EvalResult.Type().TypeName()
				if answer, isBool := each.EvalResult.Value().(bool); isBool {
					value = fmt.Sprint(answer)
				}
			}
			isMatched = isMatched && value == "true"
			found.Values = append(found.Values, value)
		}
		if !isMatched {
			break
		}
	}
	return found, nil
}

func describe(asked request) (*admission.VersionedAttributes, *admissionv1.AdmissionRequest) {
	object, old := wrap(asked.Object), wrap(asked.OldObject)
	kind := (&unstructured.Unstructured{Object: asked.Object}).GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: asked.Resource}
	metadata := &unstructured.Unstructured{Object: asked.Object}
	info := &user.DefaultInfo{Name: asked.User}
	attributes := admission.NewAttributesRecord(object, old, kind, metadata.GetNamespace(), metadata.GetName(), resource,
		asked.Subresource, asked.Operation, &metav1.UpdateOptions{}, false, info)
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind, VersionedObject: object, VersionedOldObject: old,
	}
	reviewed := policycel.CreateAdmissionRequest(
		attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	return versioned, reviewed
}

func wrap(object map[string]interface{}) runtime.Object {
	if object == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: object}
}
