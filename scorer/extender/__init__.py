"""The extender of a stock scheduler, for pods that are placed one by one.

`filter` filters and scores nodes, `bind` allocates GPUs on the chosen node, `preempt` chooses
victims, and `wire` is the protocol.
"""
