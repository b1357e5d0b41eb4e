"""The account of the cluster, with what is assumed and reserved."""
