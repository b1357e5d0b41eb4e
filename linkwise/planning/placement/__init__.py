"""Choose nodes and GPUs for a group of pods on one snapshot. Pure.

One plan, in the order of `schedule.plan`:

1. `pods`: the members become a group, with all that they ask for and the options of the plan.
2. `filtering`: all nodes are filtered at once, by columns (`state`); each has a number of members
   that it fits, or the reason why it fits none.
3. `assignment.single_node`: of the nodes that fit all members, the one whose best set of GPUs is
   the fastest, and within a tolerance the one where the least is lost.
4. `assignment.multi_node`: else the fewest nodes of the nearest network domain, as evenly filled
   as possible; every set of nodes is tried where there are few.
5. `assignment.by_count`: where NVIDIA's plugin chooses the GPUs, the same search with a ranking by
   the number of free ones; the better plan of both is taken.
6. `pod_by_pod`: members that differ, and shares, are placed one after another, all or nothing.
7. `coupled`: members that affinity or topology spread binds to each other are planned so that
   kube-scheduler can bind all of them, in some order.
8. `placements`: each member gets its part of the set, in the order of ranks along the ring.

`siblings` plans members of a gang that runs already. `baselines` and `explain` compare a plan with
the best possible one and with index order; `score` ranks nodes for a kube-scheduler. `preemption`
finds the units whose eviction would give a group a plan.
"""
