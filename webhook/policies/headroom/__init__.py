"""The headroom policy: a VM starts only where any one node may be lost then, and every VM could still migrate.

It looks at launcher pods as they are created, because they request exactly what VMs take, and at no other moment can a
start get past it. What was admitted before is never denied: migrations, and VMs that start again.
"""
