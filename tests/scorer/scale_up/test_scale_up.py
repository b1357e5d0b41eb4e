"""Requests to an autoscaler, from a waiting unit to what the API server receives."""

import pytest
import pytest_asyncio
from support.servers.leader_harness import NOW, Clock, Cluster, leading
from support.waiting import until

from linkwise.cluster import keys
from linkwise.cluster.objects.pod_status import NO_CAPACITY
from linkwise.planning.gang.crd import GANGS
from linkwise.runtime.process.clock import rfc3339
from scorer.scale_up.crd import OURS, POD_SETS_MAX

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
TEMPLATES = "/api/v1/podtemplates"
PROVISIONING = "autoscaling: {request: provisioningRequest}"
CONDITION = "autoscaling: {request: podCondition}"


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


def asking(cluster, **timings):
    return leading(cluster, **{"scale_up_interval": 0.01, **timings})


def requests(cluster):
    return cluster.all(REQUESTS)


def conditions(cluster, name):
    """Return the reason and message of each condition of a pod."""
    found = cluster[name].get("status", {}).get("conditions", ())
    return [(one["reason"], one["message"]) for one in found]


def is_marked(cluster, *names):
    return all(("Unschedulable", NO_CAPACITY) in conditions(cluster, name) for name in names)


# ---- ProvisioningRequests.


async def test_a_gang_that_does_not_fit_has_one_request_for_all_its_members(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.gang(workers=3, gpus=8)
        await until(lambda: requests(cluster))

    (request,), (template,) = requests(cluster), cluster.all(TEMPLATES)
    assert request["apiVersion"] == "autoscaling.x-k8s.io/v1"
    assert request["spec"] == {
        "provisioningClassName": keys.BEST_EFFORT_ATOMIC,
        "podSets": [{"count": 3, "podTemplateRef": {"name": template["metadata"]["name"]}}],
    }
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"][keys.GPU_WHOLE] == "8"
    (gang,) = cluster.all(GANGS)
    owner = {"apiVersion": keys.API_VERSION, "kind": "Gang"}
    owner |= {key: gang["metadata"][key] for key in ("name", "uid")}
    for one in (request, template):
        assert one["metadata"]["ownerReferences"] == [owner]
        assert one["metadata"]["labels"] == {keys.MANAGED_BY: keys.SCORER}


async def test_different_members_are_different_pod_sets(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.pod("bert-0", 8, gang="bert", size=3)
        cluster.pod("bert-1", 4, gang="bert", size=3)
        cluster.pod("bert-2", 4, gang="bert", size=3)
        await until(lambda: requests(cluster))
    (request,) = requests(cluster)
    assert sorted(one["count"] for one in request["spec"]["podSets"]) == [1, 2]


async def test_members_that_must_share_a_node_are_one_pod(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.gang(workers=4, gpus=4, annotations={keys.LINK: "one-node"})
        await until(lambda: requests(cluster))
    (request,), (template,) = requests(cluster), cluster.all(TEMPLATES)
    assert [one["count"] for one in request["spec"]["podSets"]] == [1]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"][keys.GPU_WHOLE] == "16"


async def test_for_very_many_different_members_nothing_is_asked(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        for number in range(POD_SETS_MAX + 1):
            limits = {keys.GPU_WHOLE: 1, "cpu": f"{number + 1}m"}
            cluster.pod(
                f"bert-{number}",
                gang="bert",
                size=POD_SETS_MAX + 1,
                annotations={keys.LINK: "one-node"},
                containers=[{"name": "c", "resources": {"limits": limits, "requests": limits}}],
            )
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
        await until(lambda: cluster.phase() == "Waiting")
    assert [one["metadata"]["ownerReferences"][0]["name"] for one in requests(cluster)] == ["solo"]
    assert not [path for path in cluster.reads if "/pods/bert" in path]


async def test_a_single_pod_owns_its_request(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
    (request,) = requests(cluster)
    assert request["metadata"]["ownerReferences"][0]["name"] == "solo"


async def test_the_policy_names_the_class(cluster):
    cluster.policy(
        "autoscaling: {request: provisioningRequest, provisioningClass: queued.example.com}"
    )
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
    assert requests(cluster)[0]["spec"]["provisioningClassName"] == "queued.example.com"


async def test_a_placed_gang_leaves_no_request_and_no_template(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: requests(cluster))
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        await until(lambda: not requests(cluster) and not cluster.all(TEMPLATES))


async def test_a_gang_that_lacks_a_member_for_a_moment_keeps_its_request(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: requests(cluster))
        (before,) = requests(cluster)
        cluster.delete("bert-1")
        await until(lambda: cluster.phase() == "Assembling")
        cluster.pod("bert-1", 8, gang="bert", size=2)
        cluster.pod("solo", 9)
        await until(lambda: len(requests(cluster)) == 2)
        assert before in requests(cluster)


async def test_a_gang_with_other_needs_has_another_request(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: requests(cluster))
        (before,) = requests(cluster)
        cluster.pod("bert-2", 8, gang="bert", size=2)
        await until(lambda: requests(cluster) and before not in requests(cluster))
        await until(lambda: len(requests(cluster)) == 1)
    assert requests(cluster)[0]["spec"]["podSets"][0]["count"] == 3


@pytest.mark.parametrize(
    ("condition", "age", "is_replaced"),
    [
        ("Failed", 599, False),
        ("Failed", 601, True),
        ("BookingExpired", 601, False),
        ("BookingExpired", 3601, True),
        ("Provisioned", 3601, False),
    ],
    ids=["failed", "failed long ago", "expired", "expired long ago", "provisioned"],
)
async def test_a_request_that_ended_is_replaced_later(cluster, condition, age, is_replaced):
    cluster.policy(PROVISIONING)
    clock = Clock()
    async with leading(cluster, clock=clock, scale_up_interval=0.01):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
        (before,) = requests(cluster)
        name = before["metadata"]["name"]
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/{name}"
        before["metadata"]["creationTimestamp"] = rfc3339(NOW)
        conditions = [{"type": condition, "status": "True"}]
        cluster.put(path, {**before, "status": {"conditions": conditions}})
        clock.now = NOW + age
        if is_replaced:
            await until(lambda: requests(cluster) and "status" not in requests(cluster)[0])
        else:
            cluster.pod("later", 9)
            await until(lambda: len(requests(cluster)) == 2)
            assert "status" in cluster.get(path)


async def test_one_namespace_has_a_limited_number_of_requests(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        for number in range(12):
            cluster.pod(f"solo-{number:02}", 9)
        await until(lambda: len(requests(cluster)) == 8)
        cluster.delete("solo-00")
        await until(
            lambda: not any("solo-00-" in one["metadata"]["name"] for one in requests(cluster))
        )
        await until(lambda: len(requests(cluster)) == 8)


async def test_requests_of_gangs_that_lack_a_member_count_towards_the_limit(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        for number in range(8):
            cluster.gang(f"gang-{number}", workers=2, gpus=8)
        await until(lambda: len(requests(cluster)) == 8)
        before = {one["metadata"]["name"] for one in requests(cluster)}
        for number in range(7):
            cluster.delete(f"gang-{number}-1")
        await until(
            lambda: sum(one["status"]["phase"] == "Assembling" for one in cluster.all(GANGS)) == 7
        )
        cluster.remove("/api/v1/namespaces/team/pods/gang-7-0")
        cluster.remove("/api/v1/namespaces/team/pods/gang-7-1")
        cluster.pod("solo-0", 9)
        cluster.pod("solo-1", 9)
        await until(lambda: any("solo-0" in one["metadata"]["name"] for one in requests(cluster)))
        names = {one["metadata"]["name"] for one in requests(cluster)}
    assert len(names) == 8
    assert len(names & before) == 7


async def test_nothing_is_asked_where_the_api_is_not_served(cluster):
    cluster.policy(PROVISIONING)
    absent = cluster.outcomes["GET", REQUESTS]
    absent += [(404, "the server could not find the requested resource")] * 1000
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: len(absent) < 995)
    assert not requests(cluster)
    assert not cluster.all(TEMPLATES)


async def test_a_refused_template_is_tried_again_later_and_stops_no_other_unit(cluster):
    cluster.policy(PROVISIONING)
    cluster.refuse = lambda _method, path, body: (
        (403, "exceeded quota")
        if path.endswith("/podtemplates") and "bad" in body["metadata"]["name"]
        else None
    )
    async with asking(cluster):
        cluster.pod("bad", 9)
        cluster.pod("good", 9)
        await until(lambda: requests(cluster))
    assert [one["metadata"]["name"].split("-")[0] for one in requests(cluster)] == ["good"]
    refused = [body for _, path, body in cluster.writes if path.endswith("/podtemplates")]
    assert sum("bad" in body["metadata"]["name"] for body in refused) == 1


async def test_a_request_of_that_name_by_someone_else_is_left_alone(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
        (made,) = requests(cluster)
        name = made["metadata"]["name"]
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/{name}"
        cluster.put(path, {"metadata": {"labels": {}}, "spec": {}})
        cluster.pod("other", 9)
        await until(lambda: len(requests(cluster)) == 2)
        cluster.pod("third", 9)
        await until(lambda: len(requests(cluster)) == 3)
    creations = [body for method, at, body in cluster.writes if at.endswith("provisioningrequests")]
    assert sum(body["metadata"]["name"] == name for body in creations) <= 2
    assert cluster.get(path)["metadata"]["labels"] == {}


async def test_requests_are_deleted_when_the_policy_asks_for_none(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
        cluster.policy("")
        await until(lambda: not requests(cluster) and not cluster.all(TEMPLATES))


async def test_a_new_leader_deletes_requests_of_units_that_are_gone(cluster):
    cluster.policy(PROVISIONING)
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: requests(cluster))
    cluster.delete("solo")
    async with leading(cluster, term=8, scale_up_interval=0.01):
        await until(lambda: not requests(cluster))


async def test_requests_of_others_are_left_alone(cluster):
    cluster.policy(PROVISIONING)
    path = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/of-kueue"
    cluster.put(path, {"metadata": {}, "spec": {"podSets": [], "provisioningClassName": "x"}})
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: len(requests(cluster)) == 2)
        cluster.delete("solo")
        await until(lambda: len(requests(cluster)) == 1)
    assert cluster.get(path)


@pytest.mark.parametrize("name", ["", "../../secrets/token", "a?b"])
async def test_a_tenants_request_with_our_label_ends_no_deletion(cluster, name):
    cluster.policy(PROVISIONING)
    collection = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests"
    pods = [{"count": 1, "podTemplateRef": {"name": name}}]
    for number in range(2):
        metadata = {"uid": f"u{number}", "labels": OURS}
        body = {"metadata": metadata, "spec": {"podSets": pods, "provisioningClassName": "x"}}
        cluster.put(f"{collection}/of-tenant-{number}", body)
    async with asking(cluster):
        await until(lambda: not requests(cluster))


# ---- Conditions of pods.


async def test_members_that_wait_for_capacity_are_marked_as_unschedulable(cluster):
    cluster.policy(CONDITION)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: is_marked(cluster, "bert-0", "bert-1"))
    assert not requests(cluster)


async def test_members_are_not_marked_while_one_is_missing(cluster):
    cluster.policy(CONDITION)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: is_marked(cluster, "bert-0", "bert-1"))
        cluster.delete("bert-1")
        await until(lambda: conditions(cluster, "bert-0")[0][0] == "SchedulingGated")


async def test_pods_are_unmarked_when_the_policy_asks_for_nothing(cluster):
    cluster.policy(CONDITION)
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: is_marked(cluster, "solo"))
        cluster.policy("")
        await until(lambda: conditions(cluster, "solo")[0][0] == "SchedulingGated")


async def test_a_marked_gang_is_placed_once_there_is_a_node(cluster):
    cluster.policy(CONDITION)
    async with asking(cluster):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: is_marked(cluster, "bert-0", "bert-1"))
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_mark_does_not_count_as_an_attempt_of_a_scheduler(cluster):
    cluster.policy(f"{CONDITION}\ngangs: {{commitDeadlineSeconds: 1}}")
    clock = Clock()
    async with leading(cluster, clock=clock, scale_up_interval=0.01):
        cluster.gang(workers=2, gpus=8)
        await until(lambda: is_marked(cluster, "bert-0", "bert-1"))
        cluster.node("gpu-1")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

        def is_overdue():
            # The deadline may not be set yet.
            clock.now += 10
            return "no scheduler has looked" in cluster.the_gang()["status"].get("reason", "")

        await until(is_overdue)
    assert cluster.allocated("bert-0", "bert-1")


async def test_nothing_is_asked_by_default(cluster):
    async with asking(cluster) as leader:
        cluster.pod("solo", 9)
        await until(leader.context.planner.scale_up_candidates)
        cluster.pod("later", 9)
        await until(lambda: cluster.events("WaitingForGPUs"))
    paths = [path for _, path, _ in cluster.writes]
    assert not [path for path in paths if "autoscaling" in path or "podtemplates" in path]
    assert not conditions(cluster, "solo")


async def test_a_scorer_without_the_rights_asks_once_whether_requests_are_left(cluster):
    refused = cluster.outcomes["GET", REQUESTS]
    refused += [(403, "forbidden")] * 1000
    async with asking(cluster):
        cluster.pod("solo", 9)
        await until(lambda: len(refused) < 1000)
        cluster.policy(PROVISIONING)
        await until(lambda: len(refused) < 995)
        cluster.policy("")
        left = len(refused)
        cluster.pod("later", 9)
        await until(lambda: len(cluster.events("WaitingForGPUs")) == 2)
    assert len(refused) >= left - 2
