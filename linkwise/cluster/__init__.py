"""Model of the cluster: pods, their requests, their GPUs, nodes, and the account. Pure.

Its folders are layers, from the bottom: `objects` (what Kubernetes has), `requests` (what pods ask
for), `allocations` (what they have), `nodes` (what there is) and `account` (what is free). Read
`keys` (all names on the wire), `objects.pod` and `requests.request` first.
"""
