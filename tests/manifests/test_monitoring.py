import json
import re
from pathlib import Path

import pytest
import yaml
from support.exposed import Metric, exposed

from linkwise.cluster import keys

ROOT = Path(__file__).parents[2]
RULES = [
    group
    for name in ("rules", "recording")
    for group in yaml.safe_load((ROOT / f"manifests/alerts/{name}.yaml").read_text())["spec"][
        "groups"
    ]
]
DASHBOARD = json.loads((ROOT / "charts/linkwise/dashboards/linkwise.json").read_text())
RECORDED = {r["record"]: r["expr"] for group in RULES for r in group["rules"] if "record" in r}
PAGE = (ROOT / "docs/operations/alerts.md").read_text()
OF_TARGETS = {"job", "instance", "namespace", "pod", "container"}
"""Labels that Prometheus adds to every sample of a pod."""
OF_THE_API_SERVER = {
    "apiserver_admission_webhook_admission_duration_seconds": Metric(
        "histogram", frozenset({"name", "operation", "type", "rejected"})
    ),
    "apiserver_admission_webhook_fail_open_count": Metric("counter", frozenset({"name", "type"})),
}
"""Looked for on a real one in the end-to-end tests."""
METRIC = re.compile(r"\b((?:linkwise|process|python|apiserver)_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
RATED = re.compile(r"\b(?:rate|increase)\(\s*([a-z_]+)")
BUCKETS = "_bucket"


def panels():
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


EXPRESSIONS = [
    *(
        pytest.param(rule["expr"], [], id=rule.get("alert") or rule["record"])
        for group in RULES
        for rule in group["rules"]
    ),
    *(
        pytest.param(
            re.sub(r"linkwise:[a-z_0-9:]+", lambda name: f"({RECORDED[name[0]]})", target["expr"]),
            re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]),
            id=f"{panel['title']} {target['refId']}",
        )
        for panel in panels()
        for target in panel["targets"]
    ),
]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    return exposed(tmp_path_factory.mktemp("exposed"))


@pytest.fixture(scope="module")
def metrics(processes):
    return OF_THE_API_SERVER | {
        name: metric for each in processes.values() for name, metric in each.items()
    }


def labels_of(metrics, name):
    metric = metrics[name.removesuffix(BUCKETS)]
    return metric.labels | OF_TARGETS | ({"le"} if name.endswith(BUCKETS) else set())


@pytest.mark.parametrize(("expression", "shown"), EXPRESSIONS)
def test_expression_has_only_metrics_and_labels_that_exist(metrics, expression, shown):
    used = METRIC.findall(expression)
    assert used
    assert {name.removesuffix(BUCKETS) for name, _ in used} <= metrics.keys()
    for name, matchers in used:
        assert set(re.findall(r"(\w+)(?:=~|!=|=)", matchers)) <= labels_of(metrics, name)
    known = set().union(*(labels_of(metrics, name) for name, _ in used))
    grouped = {label for found in GROUPED.findall(expression) for label in found.split(", ")}
    assert grouped <= known
    aggregated = re.match(r"(?:topk\(\d+, )?(?:sum|max|min|count|histogram_quantile)\b", expression)
    assert set(shown) <= (grouped if aggregated else known)


@pytest.mark.parametrize(("expression", "_"), EXPRESSIONS)
def test_only_counters_have_rates_and_only_histograms_have_buckets(metrics, expression, _):
    for name in RATED.findall(expression):
        found = metrics[name.removesuffix(BUCKETS)].type
        assert found == ("histogram" if name.endswith(BUCKETS) else "counter")
    for name, _matchers in METRIC.findall(expression):
        if metrics[name.removesuffix(BUCKETS)].type in {"counter", "histogram"}:
            assert name in RATED.findall(expression)


def test_each_row_of_a_metric_has_the_labels_that_the_process_gives_it(metrics):
    rows = re.findall(r"^\| `(linkwise_\w+)` \| \w+ \| ([^|]*)\|", PAGE, re.MULTILINE)

    assert rows
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == {
        name: set(metrics[name].labels) for name, _ in rows
    }


def test_panels_use_the_recording_rules_and_repeat_none():
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    used = set(re.findall(r"linkwise:[a-z_0-9:]+", " ".join(expressions)))

    assert used == {name for name in RECORDED if not name.startswith("linkwise:gpu_hours:")}
    measured = {name for rule in RECORDED.values() for name in re.findall(r"rate\(\w+\[5m\]", rule)}
    assert measured
    assert not [each for each in expressions if any(name in each for name in measured)]


def test_panels_do_not_overlap_and_have_different_ids():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_panels_read_the_chosen_data_source():
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    for panel in panels():
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])


def test_pod_monitors_select_the_probe_port_of_every_component():
    documents = list(
        yaml.safe_load_all((ROOT / "manifests/monitoring/pod-monitors.yaml").read_text())
    )
    selected = {
        item["metadata"]["namespace"]: (
            item["spec"]["selector"]["matchLabels"],
            {endpoint["port"] for endpoint in item["spec"]["podMetricsEndpoints"]},
        )
        for item in documents
    }

    workloads = [
        one
        for path in [*(ROOT / "manifests/base").glob("*.yaml"), ROOT / "manifests/agent/agent.yaml"]
        for one in yaml.safe_load_all(path.read_text())
        if one["kind"] in {"Deployment", "DaemonSet"}
    ]
    assert selected.keys() == {keys.POLICY_NAMESPACE, keys.AGENT}
    for one in workloads:
        labels, ports = selected[one["metadata"]["namespace"]]
        template = one["spec"]["template"]
        assert labels.items() <= template["metadata"]["labels"].items()
        named = {
            port["name"]
            for container in template["spec"]["containers"]
            for port in container["ports"]
        }
        assert ports <= named
