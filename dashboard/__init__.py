"""The dashboard in the cluster: the page of `cli.dashboard` for people who bring a token.

`visible` (pure) has what a caller may know, `access` finds it out at the API server, `feeds` keep a
cluster for each set of namespaces, and `entrance` lets requests in.
"""
