package kubevirt

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SelectorError says what is wrong with a node selector's syntax; it is empty if nothing is.
func SelectorError(selector map[string]string) string {
	for key, value := range selector {
		if faults := validation.IsQualifiedName(key); len(faults) > 0 {
			return fmt.Sprintf("spec.addedNodeSelector: %q is no label key: %s", key, strings.Join(faults, "; "))
		}
		if faults := validation.IsValidLabelValue(value); len(faults) > 0 {
			return fmt.Sprintf("spec.addedNodeSelector[%s]: %q is no label value: %s", key, value, strings.Join(faults, "; "))
		}
	}
	return ""
}
