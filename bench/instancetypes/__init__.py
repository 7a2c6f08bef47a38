"""What one review of the instancetypes policy costs: the server's way beside the usual one, in one run.

CPU time from the bytes of an AdmissionReview to the bytes of its answer, without HTTP and TLS, which are the same for
both. What the namespace, its instancetype and its preference say is in memory.

* The server's way is the Reviewer as the server calls it, with metrics and audit lines on.
* The usual way (`usual`) is pydantic models of the objects, the same rules on what they dump, and
  `jsonpatch.make_patch` between before and after. It writes no audit line, counts nothing and keeps the models of
  instancetype and preference ready: what unfairness there is favours it.

Both patches are applied and compared before anything is measured.
"""
