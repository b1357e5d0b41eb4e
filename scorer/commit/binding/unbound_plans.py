"""The plans that an earlier leader wrote, and whose members are not all bound. Pure."""

from collections.abc import Iterator

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.plan_record import plan_from_records, plan_id_of, plan_order
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.unit import Unit, settled_unit
from linkwise.runtime.kube.objects import Key
from scorer.cache.informers import Informers


def unbound_plans(group: Key, informers: Informers) -> Iterator[tuple[Unit, GangPlan]]:
    """Yield the plans of a group whose members are not all bound, each with its unit.

    A gang has several plans where members were created later; the earlier ones come first.
    """
    owners, pods = informers.owners, list(informers.state.groups.of(group))
    members: dict[tuple[GangKey, str], list[PodInfo]] = {}
    for pod in pods:
        plan_id = plan_id_of(pod)
        if plan_id and pod.settled:
            members.setdefault((owners.key(pod), plan_id), []).append(pod)
    for key, plan_id in sorted(members, key=lambda each: (each[0], plan_order(each[1]))):
        planned = members[key, plan_id]
        if all(pod.bound for pod in planned):
            continue
        unit = settled_unit(key, (pod for pod in pods if owners.key(pod) == key), owners)
        plan = informers.recorded_plan(key) if unit.is_gang else None
        if plan is None or plan.id != plan_id:
            plan = plan_from_records(plan_id, planned)
        yield unit, plan
