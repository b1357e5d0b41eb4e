"""Gangs on a real API server: what it takes, what it refuses, and what kubectl shows of them."""

import msgspec
import pytest
from controlplane.api import ApiError, refusal
from controlplane.process import wait_until
from msgspec import structs
from support.gang_definition import REFUSED, TAKEN

from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.objects.metadata import Owner
from linkwise.planning.gang.crd import Phase, gangs_of, read_gang
from linkwise.planning.gang.crd_patch import new_gang, owners_of, plan_steps, status_steps
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.planning.gang.crd_status import status_of

pytestmark = pytest.mark.usefixtures("shipped")

NOW = "2026-01-02T03:04:05Z"
WORKERS = tuple(PlannedPod(f"bert-worker-{i}", f"u{i}", "gpu-0", (i,)) for i in range(4))
PLAN = GangPlan("1-1", True, WORKERS, 55.2, 55.2, 46)
JOB = Owner(api_version="v1", kind="ConfigMap", name="job", uid="")


def wire(value):
    return msgspec.json.decode(msgspec.json.encode(value))


def made(api, namespace, name="bert", owners=(), **given):
    """Create a Gang; return it as the API server answers."""
    key = GangKey(namespace, name, owners[0].uid if owners else "")
    gang = new_gang(key, owners, **{"size": 4, "link": Link.BEST, **given})
    return stored(api.create(gangs_of(namespace), wire(gang)))


def stored(answer):
    return read_gang(msgspec.json.encode(answer))


def change(api, gang, steps, at=""):
    return stored(api.patch(f"{gang.path}{at}", wire(steps), "json"))


def write_status(api, gang, phase, **given):
    status = status_of(phase, **given, now=NOW)
    return change(api, gang, status_steps(gang, status), "/status")


def test_a_gang_is_kept_as_it_is_written(scorer, namespace):
    gang = made(scorer, namespace, plan=PLAN)
    updated = write_status(scorer, gang, Phase.PLACED, members=(4, 4), held=PLAN.held)

    assert gang.spec.plan == updated.spec.plan == PLAN
    assert updated.status == status_of(Phase.PLACED, members=(4, 4), held=PLAN.held, now=NOW)
    assert updated.status.phase is Phase.PLACED


def test_kubectl_waits_for_a_status_that_describes_the_plan_as_it_is(plane, scorer, namespace):
    gang = made(scorer, namespace, plan=PLAN)
    status = status_of(Phase.PLACED, members=(4, 4), held=PLAN.held, now=NOW)
    status = structs.replace(status, observed_generation=gang.metadata.generation)
    gang = change(scorer, gang, status_steps(gang, status), "/status")

    def waited(seconds):
        return plane.kubectl(
            "wait",
            f"gang/{gang.metadata.name}",
            f"--namespace={namespace}",
            "--for=condition=Placed",
            f"--timeout={seconds}s",
        ).returncode

    assert gang.status.observed_generation == gang.metadata.generation == 1
    assert waited(30) == 0
    change(scorer, gang, plan_steps(gang, GangPlan("1-2", False, WORKERS), size=4, link=Link.BEST))
    assert waited(1) == 1


def test_a_gang_of_unknown_size_is_kept_too(scorer, namespace):
    gang = made(scorer, namespace, size=None)
    updated = write_status(
        scorer, gang, Phase.ASSEMBLING, members=(2, None), reason="its size is unknown"
    )

    assert (gang.spec.size, updated.status.members) == (None, "2/?")


def test_another_plan_takes_the_place_of_the_old_one_unless_the_gang_changed(scorer, namespace):
    gang = made(scorer, namespace, plan=PLAN)
    other = GangPlan("1-2", False, WORKERS[:2], domain="rack=a")
    steps = plan_steps(gang, other, size=2, link=Link.NVLINK)

    changed = change(scorer, gang, steps)
    with pytest.raises(ApiError) as late:
        change(scorer, gang, steps)

    assert late.value.status == 422
    assert changed.spec.plan == other
    assert (changed.spec.size, changed.spec.link) == (2, Link.NVLINK)


@pytest.mark.parametrize(("path", "value"), TAKEN)
def test_a_plan_follows_the_gpus_of_its_members(scorer, namespace, path, value):
    gang = made(scorer, namespace, plan=PLAN)
    assert change(scorer, gang, [{"op": "add", "path": path, "value": value}]) != gang


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_invalid_field_of_a_gang_is_refused(scorer, namespace, path, value, message):
    gang = made(scorer, namespace, plan=PLAN)
    step = [{"op": "add", "path": path, "value": value}]
    assert message in refusal(lambda: change(scorer, gang, step))


def test_a_gang_does_not_lose_its_owner(scorer, plane, namespace):
    job = plane.api.create(f"/api/v1/namespaces/{namespace}/configmaps", a_job())["metadata"]
    gang = made(scorer, namespace, owners=owned(job))
    step = [{"op": "remove", "path": "/spec/owner"}]
    assert "stays with its job" in refusal(lambda: change(scorer, gang, step))


def test_a_gang_goes_with_its_job(scorer, plane, namespace):
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    made(scorer, namespace, owners=owned(plane.api.create(maps, a_job())["metadata"]))
    plane.api.delete(f"{maps}/job")
    wait_until(lambda: not plane.api.get(gangs_of(namespace))["items"], "it is gone", 300)


def a_job():
    return {"metadata": {"name": "job"}}


def owned(metadata):
    return owners_of(msgspec.structs.replace(JOB, uid=metadata["uid"]), ())


def test_kubectl_shows_how_gangs_stand(scorer, plane, namespace):
    write_status(
        scorer, made(scorer, namespace, plan=PLAN), Phase.PLACED, members=(4, 4), held=PLAN.held
    )
    why = "needs 64 GPUs as 64 × 1 GPU; 16 of 64 workers fit now, on 2 of 3 nodes"
    write_status(
        scorer, made(scorer, namespace, "huge"), Phase.WAITING, members=(64, 64), reason=why
    )

    shown = plane.kubectl("get", "gangs", "-n", namespace).stdout.splitlines()

    head, bert, huge = (line.split() for line in shown)
    assert head == ["NAME", "MEMBERS", "PHASE", "NODES", "GB/S", "GPUS", "AGE", "REASON"]
    assert bert[1:5] == ["4/4", "Placed", "gpu-0", "55.2"]
    assert (huge[1:3], huge[4:]) == (["64/64", "Waiting"], why.split())
    described = plane.kubectl("describe", "gangs", "-n", namespace).stdout
    assert {"Bandwidth:      55.2", "Best Possible:  55.2", "Index Order:    46"} <= {
        line.strip() for line in described.splitlines()
    }
    assert why in described


def test_kubectl_waits_until_a_gang_is_placed(scorer, plane, namespace):
    gang = made(scorer, namespace, plan=PLAN)
    updated = write_status(scorer, gang, Phase.COMMITTING, members=(0, 4), held=PLAN.held)
    wait = ("wait", "--for=condition=Placed", f"gang/{gang.metadata.name}", "-n", namespace)

    assert plane.kubectl(*wait, "--timeout=0s").returncode != 0
    write_status(
        scorer, updated, Phase.PLACED, members=(4, 4), held=PLAN.held, before=updated.status
    )
    assert plane.kubectl(*wait, "--timeout=30s").returncode == 0
