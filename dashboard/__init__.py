"""The dashboard in the cluster: the page of `linkwise.dashboard` for people who bring a token.

`visible` (pure) reduces a cluster to what a caller may list, `access` authenticates and authorizes
callers, `feeds` keep a cluster for each set of namespaces, `entrance` chooses one for a request.
"""
