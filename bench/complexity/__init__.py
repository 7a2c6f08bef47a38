"""Objects as large as etcd takes them, in every shape that the policies read, and what the reviews beside them feel."""
