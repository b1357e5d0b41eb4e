"""The outside world: the Kubernetes API, an HTTPS server, TLS files, logs, metrics, the process.

It knows nothing of GPUs, pods or policy; every component may import it. Read
`linkwise.runtime.http.types` first: a route is a function from an `HttpRequest` to an
`HttpResponse`.
"""
