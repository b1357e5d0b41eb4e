"""HTTPS server with limits, TLS files and probes."""
