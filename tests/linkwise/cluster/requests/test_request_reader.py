import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import TIED, TIMESLICED, a_container, a_pod
from support.strategies import pods

from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.keys import (
    ALLOCATION,
    GANG,
    GPU_CORE,
    GPU_COUNT,
    GPU_MEM,
    GPU_WHOLE,
    NVIDIA_GPU,
    NVIDIA_GPU_SHARED,
    RESOURCES,
)
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.amounts import check_amount, sound_amount
from linkwise.cluster.requests.request import Family, Request
from linkwise.cluster.requests.request_reader import read_request

FIRST = "spec.containers[0].resources.limits"
SHARE = {GPU_MEM: 2, GPU_CORE: 30}


def read(pod: dict[str, Any]):
    return read_request(msgspec.convert(pod, Pod))


def codes_of(pod: dict[str, Any]) -> list[Code]:
    return [finding.code for finding in read(pod)[1]]


def only_finding(pod: dict[str, Any]):
    (finding,) = read(pod)[1]
    return finding


def over(cards: int | str, *limits: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return a_pod(*limits, labels={GPU_COUNT: str(cards)}, **spec)


@pytest.mark.parametrize(
    ("limits", "family", "places", "totals"),
    [
        ({}, None, False, (0, 0, 0)),
        ({"cpu": 1, "memory": "1Gi"}, None, False, (0, 0, 0)),
        (SHARE, Family.SHARE, True, (1, 2, 30)),
        ({GPU_MEM: "5"}, Family.SHARE, True, (1, 5, 0)),
        ({GPU_MEM: "5000m", GPU_CORE: 5e1}, Family.SHARE, True, (1, 5, 50)),
        ({GPU_WHOLE: 4}, Family.WHOLE, True, (4, 0, 0)),
        ({NVIDIA_GPU: "8"}, Family.NVIDIA, False, (8, 0, 0)),
        ({NVIDIA_GPU_SHARED: 1}, Family.NVIDIA, False, (1, 0, 0)),
    ],
    ids=str,
)
def test_a_plain_pod_is_read_without_a_finding(limits, family, places, totals):
    request, findings = read(a_pod(limits))

    assert findings == ()
    assert (request.family, request.places) == (family, places)
    assert (request.gpus, request.memory, request.core) == totals


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(TIED, id="tied-to-nodes-of-ours"),
        pytest.param({"schedulingGates": [{"name": GANG}]}, id="gated"),
        pytest.param({"annotations": {ALLOCATION: "{}"}}, id="recorded"),
    ],
)
def test_nvidia_gpus_that_linkwise_places_are_whole_gpus(pod):
    request, findings = read(a_pod({NVIDIA_GPU: 2}, {NVIDIA_GPU: 1}, **pod))

    assert findings == ()
    assert (request.family, request.places) == (Family.WHOLE, True)
    assert (request.gpus, request.resource) == (3, NVIDIA_GPU)


def test_nvidia_gpus_of_a_pod_tied_to_another_mode_are_left_to_the_plugin():
    request, _ = read(a_pod({NVIDIA_GPU: 2}, **TIMESLICED))

    assert request.family is Family.NVIDIA


def test_true_is_no_amount_where_one_was_read_before():
    assert check_amount(GPU_WHOLE, 1.0, "a", 1) == check_amount(GPU_WHOLE, 1, "a", 1) == (1, None)

    assert sound_amount(GPU_WHOLE, 1.0, 1) == sound_amount(GPU_WHOLE, 1, 1) == 1

    amount, finding = check_amount(GPU_WHOLE, True, "a", 1)

    assert sound_amount(GPU_WHOLE, True, 1) is None
    assert finding is not None
    assert (amount, finding.code) == (0, Code.QUANTITY)


def test_each_requesting_container_is_reported_with_its_path():
    pod = a_pod({}, SHARE, initContainers=[a_container({GPU_MEM: 1}, name="fetch")])

    app, init = read(pod)[0].containers

    assert (app.container, app.index, app.init, app.memory, app.core) == ("c1", 1, False, 2, 30)
    assert app.field == f"spec.containers[1].resources.limits[{GPU_MEM}]"
    assert (init.container, init.index, init.init, init.memory, init.core) == (
        *("fetch", 0, True, 1, 0),
    )
    assert init.field == f"spec.initContainers[0].resources.limits[{GPU_MEM}]"


def test_a_share_over_several_cards_has_its_part_on_each():
    request, findings = read(over(2, {GPU_MEM: 6, GPU_CORE: 100}))

    assert findings == ()
    assert (request.gpus, request.memory_per_card, request.core_per_card) == (2, 3, 50)


def test_a_request_for_nothing_has_no_part_on_any_card():
    assert (Request().memory_per_card, Request().core_per_card) == (0, 0)


@pytest.mark.parametrize(
    ("amount", "fix"),
    [
        (22, "write 20 or 25"),
        ("32", "write 30 or 35"),
        ("22500m", "write 20 or 25"),
        (3, "write 5"),
        (-10, "write 5"),
        (99, "write 95 or 100"),
        (101, "write 100"),
        (400, "write 100"),
        (2.5, "write 5"),
    ],
    ids=str,
)
def test_compute_off_the_steps_is_refused_with_the_nearest_that_are_allowed(amount, fix):
    finding = only_finding(a_pod({GPU_MEM: 2, GPU_CORE: amount}))

    assert finding.code is Code.CORE_STEP
    assert finding.severity is Severity.ERROR
    assert finding.field == f"{FIRST}[{GPU_CORE}]"
    assert finding.value == amount
    assert "a multiple of 5 from 5 to 100" in finding.message
    assert finding.fix == fix


@given(percent=st.integers(-10, 900), cards=st.integers(1, 8))
def test_compute_is_allowed_when_each_card_gives_a_step_of_five(percent, cards):
    findings = read(over(cards, {GPU_MEM: cards, GPU_CORE: percent}))[1]

    steps = {cards * step for step in range(5, 101, 5)}
    assert bool(findings) == (percent not in steps)
    for allowed in [int(number) for f in findings for number in re.findall(r"\d+", f.fix)]:
        assert codes_of(over(cards, {GPU_MEM: cards, GPU_CORE: allowed})) == []


def test_over_several_cards_each_containers_compute_is_a_total_too():
    finding = only_finding(over(2, {GPU_MEM: 2, GPU_CORE: 25}, {GPU_MEM: 2, GPU_CORE: 20}))

    assert (finding.code, finding.value) == (Code.CORE_STEP, 25)
    assert "a multiple of 10 from 10 to 200, the total over 2 cards" in finding.message
    assert finding.fix == "write 20 or 30"


def test_containers_together_may_not_ask_for_more_compute_than_a_card_has():
    half = {GPU_MEM: 2, GPU_CORE: 60}

    finding = only_finding(a_pod(half, half, {}))

    assert finding.code is Code.CORE_STEP
    assert finding.field == f"spec.containers[1].resources.limits[{GPU_CORE}]"
    assert "120 percent" in finding.message
    assert "20" in finding.fix
    assert codes_of(over(2, half, half)) == []


def test_total_is_not_reported_again_after_a_container_error():
    assert codes_of(a_pod({GPU_MEM: 2, GPU_CORE: 101}, SHARE)) == [Code.CORE_STEP]
    assert codes_of(over(2, {GPU_MEM: -1}, {GPU_MEM: 4})) == [Code.MEMORY_WHOLE]


def test_compute_cannot_be_asked_without_memory_in_the_same_container():
    finding = only_finding(a_pod({GPU_CORE: 30}, {GPU_MEM: 2}))

    assert finding.code is Code.CORE_ALONE
    assert finding.field == f"{FIRST}[{GPU_CORE}]"
    assert GPU_MEM in finding.fix


@pytest.mark.parametrize(
    ("amount", "fix"), [(-1, "write 1"), (5.5, "write 6"), ("1500m", "write 2")]
)
def test_memory_is_at_least_one_whole_gib(amount, fix):
    finding = only_finding(a_pod({GPU_MEM: amount}))

    assert (finding.code, finding.field) == (Code.MEMORY_WHOLE, f"{FIRST}[{GPU_MEM}]")
    assert (finding.value, finding.fix) == (amount, fix)


@pytest.mark.parametrize(
    ("amount", "fix"),
    [
        ("8Gi", "write 8"),
        ("8G", "write 8"),
        ("8k", "write 8"),
        ("8Mi", "write 8"),
        ("16384Mi", "write 16"),
        ("1.5Gi", "write 2"),
        ("1Ti", "write 1024"),
        (15109, "write 15"),
        (8 * 2**30, "write 8"),
        ("4097", "write 5"),
        ("9E", "write 9"),
        ("9999E", "write 1"),
    ],
)
def test_memory_in_another_unit_is_refused_with_the_gib_that_were_meant(amount, fix):
    finding = only_finding(a_pod({GPU_MEM: amount}))

    assert (finding.code, finding.field) == (Code.MEMORY_UNITS, f"{FIRST}[{GPU_MEM}]")
    assert (finding.value, finding.fix) == (amount, fix)


def test_the_most_memory_is_counted_for_each_card():
    assert codes_of(a_pod({GPU_MEM: 511})) == []
    assert codes_of(over(2, {GPU_MEM: 1022})) == []
    assert codes_of(over(2, {GPU_MEM: 8194})) == [Code.MEMORY_UNITS]


@pytest.mark.parametrize("label", ["0", "-1", "two", "1.5", "", "2Gi", "9999999999", "²"])
def test_invalid_number_of_cards_is_the_only_finding(label):
    finding = only_finding(over(label, {GPU_MEM: 9000, GPU_CORE: 200}))

    assert finding.code is Code.COUNT_LABEL
    assert (finding.field, finding.value) == (f"metadata.labels[{GPU_COUNT}]", label)


def test_compute_is_off_the_steps_however_many_cards_there_are():
    assert codes_of(over("two", {GPU_MEM: 2, GPU_CORE: 22})) == [Code.CORE_STEP, Code.COUNT_LABEL]


@pytest.mark.parametrize("family", [GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED])
def test_the_label_with_the_number_of_cards_is_for_shares_alone(family):
    request, findings = read(over("anything", {family: 3}))

    assert request.gpus == 3
    (finding,) = findings
    assert (finding.code, finding.severity) == (Code.COUNT_UNUSED, Severity.WARNING)


@pytest.mark.parametrize(
    ("memory", "cards", "totals"), [(7, 2, "6 or 8"), (1, 4, "4"), (10, 4, "8 or 12")]
)
def test_memory_is_divided_evenly_over_the_cards(memory, cards, totals):
    finding = only_finding(over(cards, {GPU_MEM: memory}))

    assert finding.code is Code.COUNT_DIVIDES
    assert (finding.field, finding.value) == (f"metadata.labels[{GPU_COUNT}]", str(cards))
    assert totals in finding.fix


def test_only_the_total_of_memory_is_divided_over_the_cards():
    assert codes_of(over(2, {GPU_MEM: 3}, {GPU_MEM: 5})) == []


@pytest.mark.parametrize("zero", [0, "0", "0.0", "0Gi", "0e3", "-0"])
def test_an_amount_of_0_asks_for_nothing(zero):
    nothing = dict.fromkeys(RESOURCES, zero)

    assert read(a_pod(nothing, nodeName="n1")) == (Request(), ())
    request, findings = read(a_pod({**nothing, GPU_WHOLE: 2}, nothing))
    assert (request.family, request.gpus, len(request.containers), findings) == (
        Family.WHOLE,
        2,
        1,
        (),
    )


@pytest.mark.parametrize("zero", [0, "0", "0m", "0.0"])
@pytest.mark.parametrize("part", ["limits", "requests"])
def test_compute_of_0_beside_memory_is_denied_in_any_container(part, zero):
    for key, path in (("containers", "containers[1]"), ("initContainers", "initContainers[0]")):
        pod = a_pod({GPU_MEM: 4})
        other = {"name": "other", "resources": {part: {GPU_CORE: zero}}}
        pod["spec"][key] = [*(pod["spec"]["containers"] if key == "containers" else []), other]

        finding = only_finding(pod)

        assert (finding.code, finding.severity) == (Code.CORE_STEP, Severity.ERROR)
        assert finding.field == f"spec.{path}.resources.{part}[{GPU_CORE}]"
        assert finding.fix == "write 5, or remove the resource"


def test_compute_of_0_on_several_cards_is_denied():
    assert codes_of(over(2, {GPU_MEM: 4, GPU_CORE: 0})) == [Code.CORE_STEP]


@pytest.mark.parametrize("others", [{}, {GPU_MEM: 0}, {GPU_WHOLE: 1}, {NVIDIA_GPU: 1}])
def test_compute_of_0_without_memory_asks_for_nothing(others):
    assert codes_of(a_pod({GPU_CORE: 0, **others})) == []


def test_a_limit_of_0_does_not_hide_a_request():
    assert codes_of(asking({GPU_WHOLE: 0}, {GPU_WHOLE: 1})) != []


@pytest.mark.parametrize("resource", [GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED])
@pytest.mark.parametrize(
    ("amount", "fix"),
    [
        (-2, "write 1, or remove the resource"),
        (0.5, f"write 1, or ask for a part of a GPU by {GPU_MEM}"),
        ("1500m", f"write 2, or ask for a part of a GPU by {GPU_MEM}"),
    ],
)
def test_gpus_are_asked_for_in_whole_numbers(resource, amount, fix):
    finding = only_finding(a_pod({resource: amount}))

    assert (finding.code, finding.field) == (Code.GPU_WHOLE, f"{FIRST}[{resource}]")
    assert (finding.value, finding.fix) == (amount, fix)


@pytest.mark.parametrize("resource", [GPU_MEM, GPU_WHOLE, NVIDIA_GPU, NVIDIA_GPU_SHARED])
def test_unreadable_amount_is_reported(resource):
    finding = only_finding(a_pod({resource: "8GB"}))

    assert (finding.code, finding.field) == (Code.QUANTITY, f"{FIRST}[{resource}]")
    assert finding.value == "8GB"


def asking(limits: dict[str, Any] | None, requests: dict[str, Any]) -> dict[str, Any]:
    resources = {"requests": requests, **({"limits": limits} if limits is not None else {})}
    return a_pod(containers=[{"name": "c0", "resources": resources}])


@pytest.mark.parametrize("request_amount", [2, "2", "2000m", 2.0])
def test_a_request_may_spell_its_limit_differently(request_amount):
    assert codes_of(asking({GPU_WHOLE: 2}, {GPU_WHOLE: request_amount})) == []


def test_a_request_that_differs_from_its_limit_is_refused():
    finding = only_finding(asking({GPU_WHOLE: 2}, {GPU_WHOLE: 1}))

    assert finding.code is Code.REQUEST_IS_LIMIT
    assert finding.field == f"spec.containers[0].resources.requests[{GPU_WHOLE}]"
    assert (finding.value, finding.fix) == (1, "write 2 here too, or leave the request out")


@pytest.mark.parametrize("limits", [None, {}, {"cpu": 1}], ids=str)
def test_a_request_without_a_limit_is_refused_and_read_all_the_same(limits):
    request, (finding,) = read(asking(limits, {GPU_WHOLE: 2}))

    assert (request.family, request.gpus) == (Family.WHOLE, 2)
    assert finding.code is Code.REQUEST_IS_LIMIT
    assert finding.field == f"spec.containers[0].resources.requests[{GPU_WHOLE}]"
    assert (finding.value, finding.fix) == (2, f"add {GPU_WHOLE}: 2 to limits")


def test_unreadable_requests_and_limits_are_each_reported_once():
    unreadable = asking({GPU_WHOLE: 1}, {GPU_WHOLE: "one"})
    both = asking({GPU_WHOLE: "1x"}, {GPU_WHOLE: "one"})

    assert codes_of(unreadable) == [Code.QUANTITY]
    assert codes_of(both) == [Code.QUANTITY, Code.QUANTITY]
    assert codes_of(asking({GPU_WHOLE: "1x"}, {GPU_WHOLE: "1"})) == [Code.QUANTITY]


def test_two_families_in_one_pod_are_refused_where_the_second_is_named():
    pod = a_pod(SHARE, initContainers=[a_container({NVIDIA_GPU: 1})])

    request, (finding,) = read(pod)

    assert finding.code is Code.TWO_FAMILIES
    assert finding.field == f"spec.initContainers[0].resources.limits[{NVIDIA_GPU}]"
    assert f"{GPU_MEM} ({FIRST}[{GPU_MEM}])" in finding.message
    assert finding.message.endswith(f"and {NVIDIA_GPU}")
    assert (request.family, request.memory, len(request.containers)) == (Family.SHARE, 2, 1)


def test_every_further_family_is_reported():
    pod = a_pod({NVIDIA_GPU: 1, GPU_CORE: 5, GPU_MEM: 1}, {GPU_WHOLE: 1, NVIDIA_GPU_SHARED: 1})

    assert codes_of(pod) == [Code.TWO_FAMILIES] * 3
    assert read(pod)[0].family is Family.NVIDIA


@pytest.mark.parametrize("resource", [GPU_MEM, GPU_WHOLE, NVIDIA_GPU_SHARED])
def test_a_pod_with_a_node_name_cannot_ask_for_what_linkwise_places(resource):
    finding = only_finding(a_pod({resource: 1}, nodeName="n1"))

    assert (finding.code, finding.field, finding.value) == (Code.NODE_NAME, "spec.nodeName", "n1")
    assert "n1" in finding.fix


def test_a_pod_with_a_node_name_may_ask_for_what_others_place():
    assert codes_of(a_pod({NVIDIA_GPU: 1}, nodeName="n1")) == []
    assert codes_of(a_pod({"cpu": 1}, nodeName="n1")) == []


def test_all_problems_come_together():
    pod = over(
        "x",
        {GPU_MEM: "8GB", GPU_CORE: 22},
        {GPU_CORE: 10},
        nodeName="n1",
        initContainers=[a_container({NVIDIA_GPU: 0.5})],
    )

    assert set(codes_of(pod)) == {
        *(Code.QUANTITY, Code.CORE_STEP, Code.CORE_ALONE, Code.COUNT_LABEL),
        *(Code.GPU_WHOLE, Code.TWO_FAMILIES, Code.NODE_NAME),
    }


def sidecar(limits: dict[str, Any]) -> dict[str, Any]:
    return a_container(limits, name="s", restartPolicy="Always")


@pytest.mark.parametrize(
    ("apps", "inits", "total"),
    [
        ([2, 3], [], 5),
        ([2], [a_container({GPU_WHOLE: 5})], 5),
        ([2], [a_container({GPU_WHOLE: 1}), a_container({GPU_WHOLE: 2})], 2),
        ([2], [sidecar({GPU_WHOLE: 1})], 3),
        ([1], [sidecar({GPU_WHOLE: 2}), a_container({GPU_WHOLE: 3})], 5),
        ([1], [a_container({GPU_WHOLE: 3}), sidecar({GPU_WHOLE: 2})], 3),
        ([1], [a_container({GPU_WHOLE: 4}), sidecar({GPU_WHOLE: 2})], 4),
    ],
    ids=["apps", "large init", "inits in turn", "sidecar", "after it", "before it", "largest"],
)
def test_the_total_is_the_most_that_runs_at_one_time(apps, inits, total):
    pod = a_pod(*({GPU_WHOLE: gpus} for gpus in apps), initContainers=inits)

    request, findings = read(pod)

    assert (request.gpus, findings) == (total, ())


@given(
    apps=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    inits=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=4),
)
def test_the_total_equals_a_run_through_the_pods_life(apps, inits):
    stays = 0
    moments = []
    for gpus, restarts in inits:
        moments.append(stays + gpus)
        stays += gpus if restarts else 0
    moments.append(stays + sum(apps))
    containers = [
        (sidecar if restarts else a_container)({GPU_WHOLE: gpus}) for gpus, restarts in inits
    ]

    request, _ = read(a_pod(*({GPU_WHOLE: gpus} for gpus in apps), initContainers=containers))

    assert request.gpus == max(moments)


def at(pod: dict[str, Any], field: str) -> Any:
    value: Any = pod
    for index, key, name in re.findall(r"\[(\d+)\]|\[([^\]]+)\]|(\w+)", field):
        value = value[int(index)] if index else value[key or name]
    return value


@given(pods())
def test_every_finding_quotes_the_pod_at_its_field_and_says_what_to_do(pod):
    for finding in read(pod)[1]:
        assert at(pod, finding.field) == finding.value
        assert finding.message
        assert finding.fix
        assert "\n" not in finding.message + finding.fix


@given(pods())
def test_a_request_without_findings_is_consistent(pod):
    request, findings = read(pod)

    assert (request.family is None) == (request.containers == ())
    if findings:
        return
    assert request.gpus >= max((ask.gpus for ask in request.containers), default=0)
    assert request.memory >= max((ask.memory for ask in request.containers), default=0)
    assert request.memory_per_card * request.gpus == request.memory
    assert request.core_per_card * request.gpus == request.core
    assert request.core_per_card in range(0, 101, 5)


@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        ({GPU_MEM: 8, GPU_CORE: "30%"}, "write 30, without the percent sign"),
        ({GPU_MEM: 8, GPU_CORE: "33 %"}, "write 30 or 35, without the percent sign"),
        ({GPU_MEM: 8, GPU_CORE: "300%"}, "write 100, without the percent sign"),
        ({GPU_MEM: "50%"}, f"write GiB; a percentage of a card is asked for by {GPU_CORE}"),
        (
            {GPU_WHOLE: "50%"},
            f"write a whole number of GPUs, or ask for a part of one by {GPU_MEM}",
        ),
        ({GPU_WHOLE: "a%"}, "write a plain whole number, such as 10"),
    ],
)
def test_a_percent_sign_has_a_fix_that_is_valid(limits, fix):
    _, findings = read(a_pod(limits))

    assert [(finding.code, finding.fix) for finding in findings] == [(Code.QUANTITY, fix)]


@pytest.mark.parametrize(
    ("memory", "cards", "fix"),
    [
        (511, None, None),
        (512, None, "write 1 for 512 MiB: the unit is GiB"),
        (4096, None, "write 4 for 4096 MiB: the unit is GiB"),
        (1022, "2", None),
        (4096, "2", "write 4 for 4096 MiB: the unit is GiB"),
    ],
)
def test_memory_that_no_card_has_today_is_a_warning(memory, cards, fix):
    labels = {GPU_COUNT: cards} if cards else {}
    request, findings = read(a_pod({GPU_MEM: memory}, labels=labels))

    assert request.memory == memory
    assert [finding.fix for finding in findings] == ([fix] if fix else [])
    for finding in findings:
        assert (finding.code, finding.severity) == (Code.MEMORY_UNITS, Severity.WARNING)
        assert "did you mean MiB?" in finding.message


def test_unusual_memory_must_be_divisible_all_the_same():
    _, findings = read(a_pod({GPU_MEM: 1025}, labels={GPU_COUNT: "2"}))

    assert {finding.code for finding in findings} == {Code.MEMORY_UNITS, Code.COUNT_DIVIDES}


def test_a_number_of_cards_without_a_share_is_reported():
    finding = only_finding(a_pod({}, labels={GPU_COUNT: "2"}))

    assert (finding.code, finding.severity) == (Code.COUNT_UNUSED, Severity.WARNING)
    assert finding.fix == f"remove the label, or ask for {GPU_MEM}"
