from typing import Any

import msgspec
import pytest
from support.builders import a_container, a_pod

from linkwise.cluster.keys import GPU_MEM, NVIDIA_GPU
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import (
    EVERY_PORT,
    OTHERS_MAX,
    PORTS_MAX,
    Demand,
    HostPort,
)
from linkwise.cluster.requests.pod_demand import demand_of


def demand(pod: dict[str, Any]) -> Demand:
    return demand_of(msgspec.convert(pod, Pod))


def asking(cpu: str | int, name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **fields}


def test_a_pod_that_asks_for_nothing_takes_nothing():
    assert demand(a_pod()) == Demand()


def test_requests_of_app_containers_add_up_and_round_up():
    containers = [
        {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "4"}}},
        {"resources": {"requests": {"cpu": "0.0001", "memory": "1.5"}}},
    ]

    assert demand(a_pod(containers=containers)) == Demand(101, (1 << 30) + 2)


def test_a_limit_stands_in_for_a_missing_request():
    assert demand(a_pod({"cpu": 2, "memory": "2k"})) == Demand(2000, 2000)


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([asking(1)], 3000),
        ([asking(5), asking(4)], 5000),
        ([asking(1, restartPolicy="Always")], 4000),
        ([asking(4, restartPolicy="Always")], 7000),
        ([asking(1, restartPolicy="Always"), asking(5)], 6000),
        ([asking(5), asking(1, restartPolicy="Always")], 5000),
    ],
    ids=[
        "small init",
        "largest init",
        "sidecar",
        "large sidecar",
        "init beside a sidecar",
        "init before a sidecar",
    ],
)
def test_init_containers_count_by_kubernetes_rule(init, cpu):
    assert demand(a_pod(containers=[asking(1), asking(2)], initContainers=init)).cpu == cpu


def test_overhead_comes_on_top():
    assert demand(a_pod({"cpu": 1}, overhead={"cpu": "250m", "memory": "64"})) == Demand(1250, 64)


@pytest.mark.parametrize("amount", ["many", "-1", ""])
def test_what_no_api_server_takes_counts_as_none(amount):
    assert demand(a_pod({"cpu": amount})).cpu == 0


def test_host_ports_of_containers_and_sidecars_are_taken():
    def opening(*ports: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return a_container(ports=list(ports), **fields)

    pod = a_pod(
        containers=[
            opening({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}),
            opening({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
            opening({"hostPort": 54, "hostIP": "::"}),
        ],
        initContainers=[
            opening({"hostPort": 1}),
            opening({"hostPort": 2}, restartPolicy="Always"),
        ],
    )

    assert demand(pod).ports == {
        HostPort("", "TCP", 8080),
        HostPort("10.0.0.1", "UDP", 53),
        HostPort("", "TCP", 54),
        HostPort("", "TCP", 2),
    }


def test_every_port_is_a_host_port_with_the_hosts_network():
    container = a_container(ports=[{"containerPort": 22}])

    assert demand(a_pod(containers=[container])).ports == frozenset()
    assert demand(a_pod(containers=[container], hostNetwork=True)).ports == {
        HostPort("", "TCP", 22)
    }


@pytest.mark.parametrize(("ports", "distinguished"), [(PORTS_MAX, True), (PORTS_MAX + 1, False)])
def test_pod_with_too_many_host_ports_uses_all_ports(ports, distinguished):
    opened = [{"hostPort": port} for port in range(1, ports + 1)]

    found = demand(a_pod(containers=[a_container(ports=opened)]))

    assert (len(found.ports) == ports) is distinguished
    assert (found.ports == {EVERY_PORT}) is not distinguished
    assert found.has_too_many_ports is not distinguished


def test_every_resource_counts_by_name_except_gpus_that_are_accounted():
    pod = a_pod(
        {"rdma/hca": "1500m", "cpu": 1, GPU_MEM: 3, NVIDIA_GPU: 1, "hugepages-2Mi": "4Mi"},
        {"rdma/hca": 1, "ephemeral-storage": "1Ki", "vendor.com/none": 0},
        overhead={"ephemeral-storage": 24},
    )

    assert demand(pod) == Demand(
        1000, others=(("ephemeral-storage", 1048), ("hugepages-2Mi", 4 << 20), ("rdma/hca", 3))
    )


@pytest.mark.parametrize(("resources", "counted"), [(OTHERS_MAX, True), (OTHERS_MAX + 1, False)])
def test_a_pod_with_too_many_resources_fits_nowhere(resources, counted):
    none = {f"vendor.com/none-{i}": 0 for i in range(OTHERS_MAX + 1)}
    found = demand(a_pod({f"vendor.com/{i}": 1 for i in range(resources)} | none))

    assert (len(found.others) == resources) is counted
    assert found.has_too_many_others is not counted
    assert "" not in dict(found.others) or not counted


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ({"requests": {"cpu": 6}}, Demand(6000, 1024)),
        ({"requests": {"cpu": 1}}, Demand(1000, 1024)),
        ({"requests": {"memory": "2Ki"}}, Demand(2000, 2048)),
        ({"requests": {"hugepages-2Mi": 8}}, Demand(2000, 1024, others=(("hugepages-2Mi", 8),))),
        (
            {"limits": {"cpu": 6, "hugepages-1Gi": 4}},
            Demand(2000, 1024, others=(("hugepages-1Gi", 4),)),
        ),
        ({"requests": {"ephemeral-storage": 6}}, Demand(2000, 1024)),
        ({}, Demand(2000, 1024)),
    ],
    ids=["more", "less", "other", "huge pages", "limit", "not of pods", "none"],
)
def test_what_the_pod_itself_requests_replaces_the_total(own, asked):
    containers = [asking(1), {"resources": {"requests": {"cpu": 1, "memory": 1024}}}]

    assert demand(a_pod(containers=containers, resources=own)) == asked


def test_overhead_comes_on_top_of_what_the_pod_itself_requests():
    own = {"requests": {"cpu": 6}}

    assert demand(a_pod({"cpu": 1}, resources=own, overhead={"cpu": 1})).cpu == 7000


INFEASIBLE = [{"type": "PodResizePending", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "conditions", "cpu"),
    [
        (2, 4, 3, [], 4000),
        (2, 1, 3, [], 3000),
        (5, 4, 3, [], 5000),
        (5, 4, 3, [{"type": "PodResizePending", "reason": "Deferred"}], 5000),
        (5, 4, 3, INFEASIBLE, 4000),
        (5, None, 3, [], 5000),
    ],
    ids=["shrinks", "shrank late", "grows", "grows later", "cannot grow", "not reported"],
)
@pytest.mark.parametrize("level", ["container", "sidecar", "pod"])
def test_of_a_pod_that_is_resized_the_larger_amount_counts(
    level, spec, allocated, actual, conditions, cpu
):
    container, requests = {"name": "c"}, {"requests": {"cpu": spec}}
    reported = {"resources": {"requests": {"cpu": actual}}}
    if allocated is not None:
        reported["allocatedResources"] = {"cpu": allocated}
    if level == "pod":
        pod, status = a_pod(containers=[container], resources=requests), reported
    else:
        kind = "containers" if level == "container" else "initContainers"
        pod = a_pod(**{"containers": [], kind: [{**container, "resources": requests}]})
        pod["spec"][kind][0]["restartPolicy"] = "Always"
        name = kind.removesuffix("s").replace("container", "container") + "Statuses"
        status = {name: [{"name": "c", **reported}]}
    pod["status"] = {**status, "conditions": conditions}

    assert demand(pod).cpu == cpu


def test_resources_of_a_container_that_are_not_reported_are_those_of_the_spec():
    pod = a_pod({"cpu": 2})
    pod["status"] = {"containerStatuses": [{"name": "c0", "allocatedResources": {"cpu": 9}}]}

    assert demand(pod).cpu == 2000
