"""Clients of the gRPC services of the kubelet."""
