"""Run inside the namespaces: the cluster with KubeVirt, and the command beside it."""

from __future__ import annotations

import sys

from hack.guests.cluster import GuestCluster
from hack.guests.guest import NAME
from hack.node import inside

TEXT = f"""
KubeVirt runs until Ctrl-C: Kubernetes {{version}}, nodes {{nodes}}, images {{image}} and {NAME} (a guest).
It has namespaces of its own, so commands run inside them, in a second terminal:

  nsenter --target $(pgrep -of hack.guests.inside) --net --mount --pid -- \\
    env KUBECONFIG={{kubeconfig}} PATH={{binaries}}:$PATH bash

There, for example:

  {{python}} -m webhook install --image {{image}}
  kubectl apply -f hack/guests/vm.yaml
  kubectl get vmi,pods -o wide
  kubectl logs -l kubevirt.io/vm=guest -c guest-console-log --follow
"""


if __name__ == "__main__":
    sys.exit(inside.main(GuestCluster, TEXT))
