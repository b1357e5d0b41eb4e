"""Objects at the API server that describe this node: the topology ConfigMap, labels, Events."""
