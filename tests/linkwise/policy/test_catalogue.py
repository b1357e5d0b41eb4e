import pytest

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.objects.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
)
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.request import ContainerRequest, Family, Request
from linkwise.policy.catalogue import SHIPPED, Catalogue, Model, check_class

NONE = Request()


def gpus(count, family=Family.NVIDIA, resource=None):
    name = resource or (keys.GPU_WHOLE if family is Family.WHOLE else keys.NVIDIA_GPU)
    request = ContainerRequest("c", 0, init=False, sidecar=False, resource=name, gpus=count)
    return Request(family, count, containers=(request,))


def labels(**given):
    names = {
        "klass": keys.COMPUTE_CLASS,
        "qos": keys.COMPUTE_QOS,
        "model": keys.MODEL_SERIES,
        "driver": keys.DRIVER_VERSION,
    }
    return {names[name]: value for name, value in given.items()}


def codes(given, request=NONE, catalogue=SHIPPED):
    return [finding.code for finding in check_class(given, NewPodSpec(), request, catalogue)]


def test_gpu_counts_of_a_model_apply_to_every_nvidia_resource():
    placed = gpus(3, Family.WHOLE, keys.NVIDIA_GPU)

    assert codes(labels(klass="gpu", model="T4"), placed) == [Code.MODEL_COUNT]


@pytest.mark.parametrize(
    ("given", "request_"),
    [
        ({}, gpus(3)),
        (labels(klass="general-purpose", qos="best-effort"), NONE),
        (labels(klass="performance", qos="default"), NONE),
        (labels(klass="gpu-hpn", qos="default", driver="1.5.0"), gpus(3)),
        (labels(klass="gpu", model="T4", driver="535.161.08"), gpus(1)),
        (labels(klass="gpu", model="GN8IS", driver="535.161.08"), gpus(8)),
        (labels(klass="gpu", model="P16EN", driver="1.5.0"), gpus(16)),
        (labels(klass="gpu", model="G28Ti"), gpus(7)),
        (labels(driver="580.126.09-open"), gpus(1)),
        (labels(klass="gpu", model="T4"), gpus(3, Family.WHOLE)),
        (labels(klass="gpu-hpn", model="L20X"), gpus(2)),
    ],
    ids=range(11),
)
def test_what_the_catalogue_knows_passes(given, request_):
    assert check_class(given, NewPodSpec(), request_, SHIPPED) == ()


@pytest.mark.parametrize(
    ("given", "code", "key", "part"),
    [
        (labels(klass="high"), Code.CLASS, keys.COMPUTE_CLASS, "general-purpose, performance, gpu"),
        (labels(klass=""), Code.CLASS, keys.COMPUTE_CLASS, "'' is no compute class"),
        (labels(qos="guaranteed"), Code.QOS, keys.COMPUTE_QOS, "default, best-effort"),
        (labels(klass="gpu-hpn", qos="best-effort"), Code.QOS, keys.COMPUTE_QOS, "default only"),
        (labels(model="H100"), Code.MODEL, keys.MODEL_SERIES, "T4, A10, G49E"),
        (labels(model="H100"), Code.MODEL, keys.MODEL_SERIES, "L20 (GN8IS), L20X (GX8SF)"),
        (labels(model="example-model"), Code.MODEL, keys.MODEL_SERIES, "placeholder"),
        (labels(model="T4", driver="550.90.07"), Code.DRIVER, keys.DRIVER_VERSION, "of T4: known"),
        (labels(model="X", driver="1"), Code.DRIVER, keys.DRIVER_VERSION, "of any GPU model"),
        (labels(driver="535"), Code.DRIVER, keys.DRIVER_VERSION, "2.1.0"),
    ],
    ids=range(10),
)
def test_unknown_value_is_denied_with_the_known_ones(given, code, key, part):
    [finding] = [one for one in check_class(given, NewPodSpec(), NONE, SHIPPED) if one.code is code]

    assert finding.severity is Severity.ERROR
    assert finding.field == f"metadata.labels[{key}]"
    assert finding.value == given[key]
    assert part in finding.message


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (labels(model="t4"), "write T4"),
        (labels(model="example-model"), "write a model of the list"),
        (
            labels(model="T4", driver="535.161.80"),
            "write 535.161.08",
        ),
        (labels(model="G59", driver="x"), "write a version of the list"),
        (
            labels(model="T4", driver="x"),
            "write a version of the list, or leave the label out for 535.161.08",
        ),
        (labels(klass="GPU"), "write gpu"),
        (labels(klass="GPU_HPN"), "write gpu-hpn"),
        (labels(klass="x"), "write general-purpose, performance, gpu or gpu-hpn"),
    ],
)
def test_fix_names_the_intended_entry(given, fix):
    [finding] = check_class(given, NewPodSpec(), NONE, SHIPPED)

    assert finding.fix == fix


@pytest.mark.parametrize(
    ("model", "count", "counts"),
    [("T4", 4, "1 or 2"), ("L20X", 4, "8"), ("GX8SF", 1, "8"), ("P16EN", 12, "1, 2, 4, 8 or 16")],
)
def test_a_count_that_a_model_does_not_come_in_is_denied(model, count, counts):
    [finding] = check_class(labels(klass="gpu", model=model), NewPodSpec(), gpus(count), SHIPPED)

    assert (finding.code, finding.value) == (Code.MODEL_COUNT, count)
    assert finding.field == gpus(1).containers[0].field
    assert f"comes with {counts} GPUs" in finding.message
    assert f"ask for {counts} GPUs" in finding.fix


IN_TERM = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
    "nodeSelectorTerms[0].matchExpressions[0].values"
)


def selecting(**given):
    """Return a spec whose nodeSelector names these."""
    return NewPodSpec(node_selector=labels(**given))


def requiring(key, *values, operator="In"):
    """Return a spec whose node affinity has one requirement."""
    term = NodeSelectorTerm([Requirement(key, operator, list(values))])
    nodes = NodeAffinity(
        required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=[term])
    )
    return NewPodSpec(affinity=Affinity(node_affinity=nodes))


HPN = labels(klass="gpu-hpn")


@pytest.mark.parametrize(
    ("given", "spec", "code", "field"),
    [
        pytest.param(
            HPN,
            selecting(model="example-model"),
            Code.MODEL,
            f"spec.nodeSelector[{keys.MODEL_SERIES}]",
            id="selected placeholder",
        ),
        pytest.param(
            {}, requiring(keys.MODEL_SERIES, "T4", "H100"), Code.MODEL, IN_TERM, id="one of a list"
        ),
        pytest.param(
            labels(klass="gpu-hpn", driver="1.5.0"),
            selecting(model="T4"),
            Code.DRIVER,
            f"metadata.labels[{keys.DRIVER_VERSION}]",
            id="label's driver of a selected model",
        ),
        pytest.param(
            HPN, requiring(keys.DRIVER_VERSION, "0"), Code.DRIVER, IN_TERM, id="required driver"
        ),
        pytest.param(
            labels(klass="gpu", model="T4"),
            selecting(model="A10"),
            Code.MODEL_CONTRADICTS,
            f"spec.nodeSelector[{keys.MODEL_SERIES}]",
            id="another model",
        ),
        pytest.param(
            labels(klass="gpu", model="T4", driver="535.161.08"),
            requiring(keys.DRIVER_VERSION, "570.133.20"),
            Code.MODEL_CONTRADICTS,
            IN_TERM,
            id="another driver",
        ),
    ],
)
def test_what_a_pod_requires_of_its_nodes_is_judged_as_its_labels_are(given, spec, code, field):
    (finding,) = check_class(given, spec, NONE, SHIPPED)

    assert (finding.code, finding.severity, finding.field) == (code, Severity.ERROR, field)


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        pytest.param(labels(klass="gpu-hpn", driver="1.5.0"), selecting(model="P16EN"), id="hpn"),
        pytest.param(labels(model="L20"), selecting(model="GN8IS"), id="two names of one model"),
        pytest.param(labels(model="T4"), requiring(keys.MODEL_SERIES, "A10", "T4"), id="a wider"),
        pytest.param({}, requiring(keys.MODEL_SERIES, "H100", operator="NotIn"), id="excluded"),
        pytest.param(
            labels(driver="525.105.17"),
            requiring(keys.MODEL_SERIES, "A10", "T4"),
            id="driver of one of the models",
        ),
    ],
)
def test_nodes_that_the_catalogue_knows_pass(given, spec):
    assert check_class(given, spec, NONE, SHIPPED) == ()


def test_class_gpu_without_a_model_is_a_warning():
    (finding,) = check_class(labels(klass="gpu"), selecting(model="T4"), gpus(1), SHIPPED)

    assert (finding.code, finding.severity) == (Code.MODEL_MISSING, Severity.WARNING)
    assert keys.MODEL_SERIES in finding.message


def test_a_word_that_no_label_can_hold_is_not_compared_with_the_catalogue():
    (finding,) = check_class(labels(model="T" * 64), NewPodSpec(), NONE, SHIPPED)

    assert finding.fix == "write a model of the list"


def test_without_strictness_an_entry_that_the_catalogue_lacks_is_a_warning():
    given = labels(klass="gpu", qos="x", model="T4", driver="0")

    findings = check_class(given, NewPodSpec(), gpus(3), SHIPPED, strict=False)

    assert {finding.code: finding.severity for finding in findings} == {
        Code.QOS: Severity.ERROR,
        Code.DRIVER: Severity.WARNING,
        Code.MODEL_COUNT: Severity.WARNING,
    }


def test_all_problems_come_at_once():
    assert codes(labels(klass="x", qos="x", model="x", driver="x")) == [
        Code.CLASS,
        Code.QOS,
        Code.MODEL,
        Code.DRIVER,
    ]


def test_of_a_model_without_a_list_any_driver_and_count_pass():
    catalogue = Catalogue((Model("Z"),))

    assert codes(labels(klass="gpu", model="Z", driver="9"), gpus(5), catalogue) == []


def test_an_empty_catalogue_knows_no_model_but_judges_no_driver():
    assert codes(labels(model="T4", driver="9"), NONE, Catalogue(())) == [Code.MODEL]


PROTOCOL = """
GU8TF | 96 | 1 2 4 8 | 580.95.05-open, 550.90.07*
GU8TEF | 141 | 1 2 4 8 | 580.95.05-open, 570.133.20*, 550.127.08
L20 (GN8IS) | 48 | 1 2 4 8 | 580.95.05-open, 570.133.20, 550.90.07*, 535.161.08
L20X (GX8SF) | 141 | 8 | 580.95.05-open, 570.133.20*, 550.127.08
P16EN | 96 | 1 2 4 8 16 | 2.1.0, 2.0.0, 1.5.4, 1.5.1, 1.5.0, 1.4.1*
T4 | 16 | 1 2 | 580.95.05-open, 570.133.20, 535.161.08*, 525.105.17
A10 | 24 | 1 2 4 8 | 580.95.05-open, 570.133.20, 550.90.07*
G49E | 48 | 1 2 4 8 | 580.95.05-open, 570.124.06
G59 | 32 | 1 2 4 8 | 580.95.05-open, 575.64.05
G28Ti | — | — | 580.95.05-open
L20N | — | — | 580.95.05-open*, 580.126.09-open
L20NE | — | — | 580.126.09-open*
PPU810E | — | — |
"""


def test_the_shipped_catalogue_is_that_of_the_protocol():
    rows = [
        f"{model.title} | {model.memory or '—'} | {' '.join(map(str, model.counts)) or '—'} | "
        + ", ".join(one + "*" * (one == model.default) for one in model.drivers)
        for model in SHIPPED.models
    ]

    assert [row.rstrip() for row in rows] == PROTOCOL.strip().split("\n")


@pytest.mark.parametrize(("alias", "name"), [("GN8IS", "L20"), ("GX8SF", "L20X"), ("T4", "T4")])
def test_a_model_is_found_by_any_of_its_names(alias, name):
    found = SHIPPED.find(alias)

    assert found is not None
    assert found.name == name
    assert alias in SHIPPED.names
