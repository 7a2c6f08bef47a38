"""What one admission review costs: kubevirt-webhook beside the webhooks that are usually written, in one run.

The figure to trust is CPU time per review. Requests per second and latencies depend on what else the machine does, and
compare only within one table. So the rounds are interleaved: in each, every server gets the same payload right after
the other, and ratios are taken within a round before their median is.

What runs:

* kubevirt-webhook (``ours``), with lookups, metrics and audit lines on;
* ``plain``: Go, net/http and encoding/json, the API's full types;
* ``partial``: the same with only the needed fields, the best that Go's standard library does;
* ``peer``: Go, with the same decisions, lookups, metrics and audit lines as kubevirt-webhook; its package comment says
  what it leaves out;
* ``controllerruntime``: Go, as kubebuilder teaches it;
* ``naive``: Python, as tutorials teach it.

None but kubevirt-webhook and ``peer`` reads anything else than the review, counts anything or writes a log: what
unfairness there is favors the others. Every server runs on one core, the load on another.
"""
