"""The migration policy: every label of ``addedNodeSelector`` holds beside the VM's own requirements.

KubeVirt merges the added selector with the VM's own into one mapping: a colliding key is dropped silently and the
migration goes elsewhere; a CPU vendor's key switches off the rule that it stands in for; a value that is not a valid
label value makes the migration hang, and with it every drain of the VM. Here such a migration is denied at once and
explained (`virtualmachineinstancemigrations`), and an admitted one is enforced on the target pod, where nothing
collides (`pods`). Migrations without an added selector, evacuations among them, are never denied or delayed.

A limit of what a node receives at once, which is off by default, leaves nodes out of target pods (`inbound`).
"""
