"""Servers that tests talk to: API servers, a kubelet, and processes of Linkwise."""
