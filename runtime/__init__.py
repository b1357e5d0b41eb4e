"""The outside world: the Kubernetes API, an HTTPS server, TLS files, logs, metrics, the process.

It knows nothing of GPUs, pods or policy, and every component may stand on it. Read `exchange`
first: a route is a function from a `Call` to an `Answer`; `server` keeps everything else from it.
"""
