// Package core stands in for KubeVirt's, see the README.
package core

const (
	GroupName            = "template.kubevirt.io"
	PluralResourceName   = "virtualmachinetemplates"
	SingularResourceName = "virtualmachinetemplate"
)
