"""The live page of a cluster, served on loopback: its views, their changes, and its server."""
