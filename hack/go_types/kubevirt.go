package main

import (
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

func kinds() map[string]any {
	return map[string]any{
		"VirtualMachine":             v1.VirtualMachine{},
		"VirtualMachineInstance":     v1.VirtualMachineInstance{},
		"VirtualMachineInstancetype": v1beta1.VirtualMachineInstancetype{},
		"VirtualMachinePreference":   v1beta1.VirtualMachinePreference{},
	}
}
