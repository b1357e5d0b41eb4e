"""Node agent: reads the GPUs of its node, publishes them, and gives containers those recorded.

Layers, top down: `__main__` wires; `node_agent` reconciles; `publish` writes to the API server;
`plugin` serves the kubelet; `audit` compares running processes with records; `binding` writes CDI
specifications; `mps` and `kubelet` talk to other daemons of the node; `driver` reads the GPUs.
"""
