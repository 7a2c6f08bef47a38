"""The migration policy: user migrations with ``addedNodeSelector`` as the pure AND that they promise to be.

KubeVirt merges the added selector with the VM's own into one mapping: a colliding key is dropped without a word and the
migration goes elsewhere; a CPU vendor's key switches off the guard that it stands in for; a value that is no label
value makes the migration hang, and with it every drain of the VM. Here it is refused at once and explained
(`virtualmachineinstancemigrations`), and whatever was admitted is enforced on the target pod, where nothing collides
(`pods`). Migrations without an added selector, evacuations among them, are never refused, delayed or changed.
"""
