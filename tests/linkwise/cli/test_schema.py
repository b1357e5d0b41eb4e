import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from support.builders import node_object

from linkwise.admission.dry_run.dryrun import dry_run, read_manifest
from linkwise.admission.dry_run.dryrun import encode_dry_run as answered
from linkwise.cli.schema import KINDS
from linkwise.cluster import keys
from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.planning.placement.state.snapshot import snapshot_of
from linkwise.planning.whatif.fit import would_fit
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.live.snapshot import snapshot_text
from linkwise.views.output.printer import Format

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas"
POLICIES = Path(__file__).parents[3] / "docs" / "policy.md"
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\n"
    "spec: {containers: [{name: c, resources: {limits: {LIMITS}}}]}\n"
)
GANG = (
    "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: NAME}\n"
    "spec: {replicas: SIZE, template: {metadata: {labels: {gputopology: 'true',"
    " gputopology-replica: 'SIZE'}},"
    " spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 1}}}]}}}\n"
)
JOBS = "---\n".join(
    [
        POD.replace("NAME", "whole").replace("LIMITS", "aliyun.com/gpu: 2"),
        POD.replace("NAME", "denied").replace("LIMITS", "aliyun.com/gpu: 0.5"),
        POD.replace("NAME", "share").replace("LIMITS", "aliyun.com/gpu-mem: 3"),
        POD.replace("NAME", "counted").replace("LIMITS", "nvidia.com/gpu: 1"),
        POD.replace("NAME", "plain").replace("LIMITS", ""),
        GANG.replace("NAME", "fits").replace("SIZE", "4"),
        GANG.replace("NAME", "never").replace("SIZE", "40"),
        "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: ray}\n",
    ]
)
CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: gpu, count: 2, machine: dgx1-v100, mode: topology, used: [{gpu: 0}]}
- {name: share, machine: t4x4, mode: core_mem, used: [{gpu: 0, mem: 3, core: 20}]}
- {name: sliced, machine: t4x4, mode: timeslice, replicas: 4}
- {name: plain, machine: dgx-a100}
---
apiVersion: v1
kind: Pod
metadata: {name: running, namespace: team, uid: u1}
spec: {nodeName: plain, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 3}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: team, uid: u2}
spec:
  schedulingGates: [{name: linkwise.dev/gang}]
  containers: [{name: c, resources: {limits: {aliyun.com/gpu: 8}}}]
"""
PROFILE = '[{"name": "all", "effect": {"labels": {"x/y": "1"}}}]'
CALLS = [
    ("CheckReport", "check", "jobs.yaml"),
    ("CheckReport", "check", "jobs.yaml", "--cluster", "cluster.yaml", "--profile", "p.json"),
    ("Simulation", "simulate", "jobs.yaml", "--cluster", "cluster.yaml"),
    ("Choice", "topology", "best", "dgx1-v100", "--count", "4"),
    ("Choice", "topology", "best", "dgx1-v100", "--count", "1"),
    ("Choice", "topology", "best", "dgx1-v100", "--count", "4", "--free", "0-2"),
    ("Machine", "topology", "show", "dgx1-v100"),
    ("Machine", "topology", "show", "l4x8"),
    ("Machine", "topology", "show", "dgx-h100"),
    ("MachineList", "topology", "list"),
    ("Inspection", "inspect", "--cluster", "cluster.yaml"),
    ("Slots", "inspect", "--slots", "--cluster", "cluster.yaml"),
    ("Explanation", "explain", "pod", "team/waiting", "--cluster", "cluster.yaml"),
    ("Explanation", "explain", "pod", "team/running", "--cluster", "cluster.yaml"),
    ("LintReport", "policy", "lint", "p.json"),
    ("LintReport", "policy", "lint", "wrong.yaml"),
]


@pytest.fixture
def answer(linkwise, write):
    """Answers a command line on these files."""
    write("jobs.yaml", JOBS)
    write("cluster.yaml", CLUSTER)
    write("p.json", PROFILE)
    write("wrong.yaml", "capacity: perhaps\n")

    def call(*arguments, output="json"):
        return linkwise(*arguments, "-o", output)

    return call


def closed(schema):
    """Return a schema that also refuses what it does not name."""
    made = copy.deepcopy(schema)
    for definition in made["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_published_schemas_match_the_types(linkwise, kind):
    ran = linkwise("schema", kind)

    assert (ran.code, ran.err) == (0, "")
    file = PUBLISHED / f"{kind}.json"
    assert file.read_text() == ran.out, f"write it: linkwise schema {kind} --to {file}"


def test_nothing_else_is_published():
    assert {one.stem for one in PUBLISHED.glob("*.json")} == KINDS.keys()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "DryRun"])
def test_a_schema_is_one(kind):
    jsonschema.Draft202012Validator.check_schema(KINDS[kind]())


@pytest.mark.parametrize(("kind", "arguments"), [(one[0], one[1:]) for one in CALLS])
def test_every_answer_is_what_its_schema_says(answer, kind, arguments):
    ran = answer(*arguments)

    document = json.loads(ran.out)
    assert (document["apiVersion"], document["kind"]) == ("cli.linkwise.dev/v1", kind)
    jsonschema.validate(document, closed(KINDS[kind]()))
    assert yaml.safe_load(answer(*arguments, output="yaml").out) == document


@pytest.mark.parametrize(
    "change",
    [{"apiVersion": "v2"}, {"kind": "Choice"}, {"items": None}, {"items": [{}]}],
    ids=lambda change: next(iter(change)),
)
def test_another_document_is_refused(answer, change):
    document = json.loads(answer("check", "jobs.yaml").out) | change

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, KINDS["CheckReport"]())


@pytest.mark.parametrize("output", list(Format)[1:])
def test_a_snapshot_is_what_its_schema_says_and_is_read_again(linkwise, write, output):
    node = node_object("n", {keys.NODE_MODE: "topology"}, **{keys.GPU_WHOLE: "8"})
    write("snapshot", snapshot_text([node], output))

    document = yaml.safe_load(snapshot_text([node], output))

    jsonschema.validate(document, closed(KINDS["Snapshot"]()))
    assert linkwise("inspect", "--cluster", "snapshot").out.startswith("n topology")


@pytest.mark.parametrize("fits", ["no scorer leads", []], ids=["no placement", "placed"])
def test_dry_run_response_matches_its_schema(fits):
    manifest = read_manifest(JOBS.encode(), "default")
    judged = dry_run(
        manifest,
        namespaces=dict.fromkeys(manifest.namespaces),
        policy=PolicySnapshot(),
        capacity=Capacity(),
    )
    if not isinstance(fits, str):
        fits = would_fit(snapshot_of(Ledger({})), judged.fit_request, {})

    document = json.loads(answered(judged, fits))

    described = KINDS["DryRun"]()
    operation = described["paths"]["/v1/dry-run"]["post"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(document, {**schema, "components": described["components"]})
    assert [one["kind"] for one in document["unjudged"]] == ["Trainer"]


def test_unknown_kind_is_an_error_with_known_kinds(linkwise):
    ran = linkwise("schema", "Report")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "linkwise: Invalid value for KIND: 'Report' is not one of CheckReport, Simulation, "
    )


def policies():
    """Yield the examples of policies in the documentation."""
    for block in POLICIES.read_text().split("```yaml\n")[1:]:
        text = block.partition("```")[0]
        document = yaml.safe_load(text)
        if isinstance(document, dict) and document.get("kind") in {None, "Policy"}:
            yield document


def test_the_policies_of_the_documentation_are_what_the_schema_says():
    found = list(policies())

    assert found
    for document in found:
        jsonschema.validate(document, KINDS["Policy"]())


@pytest.mark.parametrize(
    "policy", [{"capacity": "perhaps"}, {"capcity": "deny"}, {"gangs": {"ageingMinutes": -1}}]
)
def test_a_policy_that_is_wrong_is_refused_by_the_schema_too(policy):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(policy, KINDS["Policy"]())
