"""Planning, pure: units and a snapshot go in, a plan or a reason comes out.

From the bottom: `placement` chooses nodes and GPUs, `gang` has units and their
records, `state` the account of the cluster, `cycle` one pass over the units that
wait, and `whatif` does it for pods that do not exist yet.
"""
