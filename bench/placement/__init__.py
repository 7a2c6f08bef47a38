"""Where a real kube-scheduler puts launcher pods: by its default profile, and by the one that kubevirt-webhook sets.

Every launcher pod of a cluster runs the same image, and every node has had it for long. But a node reports only its
fifty largest images, so on a node that is full of larger ones the scheduler believes the launcher's to be missing; its
plugin ImageLocality then draws the virtual machines to the other nodes. A profile without that plugin spreads them,
and kubevirt-webhook is what puts them on that profile.

Nothing is simulated but the kubelets: etcd, API server, both schedulers and the server are real processes, and the pods
are made as KubeVirt's controller makes them. What is counted is where the schedulers bound them.

The pods are equal, so a perfectly even spread is possible, but how near a scheduler comes to it depends on the size of
the nodes too. Scores are whole numbers: where a pod is less than a hundredth of a node, several more of them don't
change its score, and neither profile distinguishes nodes that tie.
"""
