// olm-bundle checks a bundle of the Operator Lifecycle Manager, and prints what its manager would make of its webhooks.
//
// `olm-bundle DIRECTORY` runs the checks of operator-framework's library, as `operator-sdk bundle validate` does, and
// prints a line for each finding; its status is 1 if there is one. `olm-bundle DIRECTORY NAMESPACE` reads a caBundle from
// standard input and prints the webhook configurations of an OperatorGroup of all namespaces, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All that the library has for a bundle, but one that pulls the image.
var checks = validation.DefaultBundleValidators.WithValidators(
	validation.OperatorHubV2Validator,
	validation.StandardCategoriesValidator,
	validation.StandardCapabilitiesValidator,
	validation.ObjectValidator,
	validation.CommunityOperatorValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func validate(bundle *manifests.Bundle) int {
	status := 0
	objects := bundle.ObjectsToValidate()
	for _, object := range bundle.Objects {
		objects = append(objects, object)
	}
	for _, result := range checks.Validate(objects...) {
		for _, finding := range append(result.Errors, result.Warnings...) {
			fmt.Println(finding.Error())
			status = 1
		}
	}
	return status
}

func configurations(csv *v1alpha1.ClusterServiceVersion, namespace string, caBundle []byte) []any {
	result := []any{}
	for _, webhook := range csv.Spec.WebhookDefinitions {
		about := meta.ObjectMeta{GenerateName: webhook.GenerateName + "-", Labels: map[string]string{
			"olm.owner": csv.Name, "olm.webhook-description-generate-name": webhook.GenerateName,
		}}
		group := meta.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1"}
		if webhook.Type == v1alpha1.MutatingAdmissionWebhook {
			group.Kind = "MutatingWebhookConfiguration"
			entry := webhook.GetMutatingWebhook(namespace, nil, caBundle)
			result = append(result, admissionregistration.MutatingWebhookConfiguration{
				TypeMeta: group, ObjectMeta: about, Webhooks: []admissionregistration.MutatingWebhook{entry},
			})
		} else {
			group.Kind = "ValidatingWebhookConfiguration"
			entry := webhook.GetValidatingWebhook(namespace, nil, caBundle)
			result = append(result, admissionregistration.ValidatingWebhookConfiguration{
				TypeMeta: group, ObjectMeta: about, Webhooks: []admissionregistration.ValidatingWebhook{entry},
			})
		}
	}
	return result
}

func main() {
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	fail(err)
	if len(os.Args) == 2 {
		os.Exit(validate(bundle))
	}
	caBundle, err := io.ReadAll(os.Stdin)
	fail(err)
	fail(json.NewEncoder(os.Stdout).Encode(configurations(bundle.CSV, os.Args[2], caBundle)))
}
