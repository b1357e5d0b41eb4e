import json
import textwrap

import jsonpatch
import pytest
import yaml
from controlplane.arena import launcher_of, submitted, workers_of
from support.documents import TIME_SLICING

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
  - name: main
    resources:
      limits: {LIMITS}
"""
SHARE = POD.replace("LIMITS", "aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: 30")
BAD = POD.replace("LIMITS", "aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: 22")
WHOLE = POD.replace("LIMITS", "aliyun.com/gpu: 2")
PLAIN = POD.replace("LIMITS", "cpu: 1")
CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: gpu, machine: dgx1-v100, mode: topology}
- {name: share, machine: t4x4, mode: core_mem}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {tier: gold}}
"""
PROFILE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: acs-profile, namespace: kube-system}
data:
  selectors: |
    [{"name": "gold-driver",
      "namespaceSelector": {"matchLabels": {"tier": "gold"}},
      "effect": {"labels": {"alibabacloud.com/gpu-driver-version": "1.5.0"}}}]
"""
POLICY = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: linkwise, namespace: linkwise-system}
data:
  policy.yaml: |
    capacity: deny
"""


@pytest.fixture
def check(linkwise, write):
    """Checks one manifest and returns the exit code and the entries."""

    def check_text(text, *arguments):
        write("job.yaml", text)
        code, out, _ = linkwise("check", "job.yaml", *arguments, "-o", "json")
        return code, json.loads(out)["items"]

    return check_text


def test_an_entry_has_the_documented_shape(check):
    code, (entry,) = check(SHARE)

    assert code == 0
    assert entry.keys() >= {
        "source", "kind", "name", "namespace", "template", "verdict", "findings", "profiles",
        "patch", "patched", "request",
    }  # fmt: skip
    assert entry["source"] == "job.yaml:1"
    assert (entry["kind"], entry["name"], entry["namespace"]) == ("Pod", "train", "default")
    assert entry["template"] is None
    assert (entry["verdict"], entry["findings"], entry["profiles"]) == ("allowed", [], [])
    assert entry["request"] == {"family": "share", "gpus": 1, "memory": 2, "core": 30}


def test_the_patch_makes_the_patched_pod(check):
    _, (entry,) = check(SHARE)

    pod = yaml.safe_load(SHARE)
    pod["metadata"]["namespace"] = "default"
    steps = [{key: step[key] for key in step if key != "rule"} for step in entry["patch"]]
    assert steps
    assert all(step["rule"] for step in entry["patch"])
    assert jsonpatch.apply_patch(pod, steps) == entry["patched"]
    assert entry["patched"] != pod


def test_denial_names_problem_place_and_fix(check):
    code, (entry,) = check(BAD)

    assert (code, entry["verdict"], entry["patch"]) == (1, "denied", [])
    (finding,) = entry["findings"]
    assert finding["code"] == "LW101"
    assert finding["severity"] == "error"
    assert finding["value"] == 22
    assert finding["source"] == "job.yaml:9"
    assert finding["field"] == (
        "spec.containers[0].resources.limits[aliyun.com/gpu-core.percentage]"
    )
    assert "multiple of 5" in finding["message"]
    assert "20" in finding["fix"]


def test_scheduler_that_chooses_no_gpus_is_a_finding_with_line(check, write):
    write("policy.yaml", "placement: {mode: scheduler}\n")
    named = WHOLE.replace("spec:\n", "spec:\n  schedulerName: mine\n")

    code, (entry,) = check(named, "--policy", "policy.yaml")

    assert (code, entry["verdict"]) == (1, "denied")
    (finding,) = entry["findings"]
    assert (finding["code"], finding["severity"]) == ("LW116", "error")
    assert (finding["field"], finding["value"]) == ("spec.schedulerName", "mine")
    assert finding["source"] == "job.yaml:6"
    assert check(WHOLE, "--policy", "policy.yaml")[0] == 0
    assert check(named)[0] == 0


def test_a_pod_without_gpus_is_listed_as_skipped(check):
    code, (entry,) = check(PLAIN)

    assert (code, entry["verdict"], entry["patch"]) == (0, "skipped", [])
    assert entry["patched"]["metadata"]["name"] == "train"
    assert entry["request"]["family"] is None


def test_there_is_one_entry_a_template(check):
    text = """\
        apiVersion: kubeflow.org/v1alpha1
        kind: MPIJob
        metadata: {name: job}
        spec:
          replicas: 4
          template:
            metadata:
              labels:
                pod-group.scheduling.sigs.k8s.io/name: mpijob-job
                pod-group.scheduling.sigs.k8s.io/min-available: "4"
            spec:
              containers:
              - name: mpi
                resources: {limits: {aliyun.com/gpu: 0.5}}
        """
    code, (launcher, worker) = check(textwrap.dedent(text))

    assert code == 1
    assert [launcher["template"], worker["template"]] == ["launcher", "worker"]
    assert {launcher["name"], worker["name"]} == {"job"}
    assert (launcher["verdict"], worker["verdict"]) == ("allowed", "denied")
    assert worker["replicas"] == 4
    assert worker["patched"]["metadata"]["name"] == "job-worker-0"
    assert worker["findings"][0]["field"].startswith("spec.containers[0].resources")
    assert worker["findings"][0]["source"] == "job.yaml:14"


def test_gang_error_names_the_workload(check):
    text = """\
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {name: job}
        spec:
          replicas: 2
          template:
            metadata: {annotations: {linkwise.dev/gang: g, linkwise.dev/gang-size: "2"}}
            spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 1}}}]}
        """
    code, (entry,) = check(textwrap.dedent(text))

    assert code == 1
    assert [finding["code"] for finding in entry["findings"]] == ["LW401"]


SET = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: NAME}
spec:
  replicas: REPLICAS
  podManagementPolicy: Parallel
  template:
    metadata: {annotations: {linkwise.dev/gang: GANG, linkwise.dev/gang-size: "SIZE"}}
    spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu: 1}}}]}
"""


def a_set(name, replicas, size, gang="train"):
    fields = {"NAME": name, "REPLICAS": str(replicas), "SIZE": str(size), "GANG": gang}
    text = SET
    for field, value in fields.items():
        text = text.replace(field, value)
    return text


@pytest.mark.parametrize(
    ("sets", "warned"),
    [
        ([a_set("ps", 1, 5), a_set("worker", 3, 4)], {"worker"}),
        ([a_set("ps", 1, 5), a_set("worker", 4, 5)], set()),
        ([a_set("one", 4, 4), a_set("two", 8, 8)], set()),
        ([a_set("ps", 1, 5), a_set("worker", 3, 4, gang="other")], set()),
        ([a_set("ps", 1, 2), a_set("x", 1, 3), a_set("z", 1, 4)], {"ps", "x"}),
    ],
    ids=["different", "equal", "gangs by themselves", "other gangs", "three"],
)
def test_members_of_a_gang_that_state_different_sizes_are_warned_of(check, sets, warned):
    _, answer = check("---\n".join(sets))

    found = {
        item["name"]: one
        for item in answer
        for one in item["findings"]
        if "different sizes" in one["message"]
    }
    assert found.keys() == warned
    assert {one["code"] for one in found.values()} <= {"LW402"}
    assert {one["severity"] for one in found.values()} <= {"warning"}


NEAR = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NEAR]}}


@pytest.mark.parametrize(
    ("spec", "is_owned", "is_warned"),
    [
        ({"affinity": {"nodeAffinity": REQUIRED}}, False, True),
        ({"affinity": {"nodeAffinity": REQUIRED}}, True, False),
        ({"nodeSelector": {"zone": "a"}}, False, False),
    ],
    ids=["a pod", "a template", "a node selector"],
)
def test_a_pod_whose_second_server_side_apply_conflicts_is_warned_of(
    check, spec, is_owned, is_warned
):
    manifest = yaml.safe_load(WHOLE)
    manifest["spec"] |= spec
    if is_owned:
        template = {"metadata": {}, "spec": manifest["spec"]}
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
        manifest["spec"] = {"replicas": 1, "template": template}

    _, answer = check(yaml.safe_dump(manifest))

    codes = [one["code"] for item in answer for one in item["findings"]]
    assert ("LW130" in codes) is is_warned


def test_a_workload_scaled_to_none_is_judged_all_the_same(check):
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
    template = textwrap.indent(BAD, "    ")

    assert check(f"{head}spec:\n  replicas: 0\n  template:\n{template}")[0] == 1


def test_capacity_is_judged_against_a_cluster(check, write):
    write("cluster.yaml", CLUSTER)
    huge = WHOLE.replace("gpu: 2", "gpu: 9")

    assert check(huge)[1][0]["findings"] == []
    code, (entry,) = check(huge, "--cluster", "cluster.yaml")
    assert (code, entry["findings"][0]["code"]) == (1, "LW111")
    assert (entry["verdict"], entry["findings"][0]["severity"]) == ("allowed", "warning")
    write("policy.yaml", "capacity: deny\n")
    code, (entry,) = check(huge, "--cluster", "cluster.yaml", "--policy", "policy.yaml")
    assert (code, entry["verdict"]) == (1, "denied")


def test_profiles_see_the_namespaces_of_the_cluster(check, write):
    write("cluster.yaml", CLUSTER)
    write("profile.yaml", PROFILE)
    arguments = ("--profile", "profile.yaml", "--cluster", "cluster.yaml", "-n")

    _, (team,) = check(WHOLE, *arguments, "team")
    label = {"alibabacloud.com/gpu-driver-version": "1.5.0"}
    assert team["namespace"] == team["patched"]["metadata"]["namespace"] == "team"
    assert team["profiles"][0] | {"reason": ""} == {
        "name": "gold-driver",
        "matched": True,
        "reason": "",
        "added": {"metadata.labels[alibabacloud.com/gpu-driver-version]": "1.5.0"},
        "kept": [],
    }
    assert team["patched"]["metadata"]["labels"] == label

    _, (other,) = check(WHOLE, *arguments, "other")
    assert (other["profiles"][0]["matched"], len(other["findings"])) == (False, 1)
    assert other["findings"][0]["code"] == "LW506"


def test_a_namespace_beside_the_manifests_is_known_too(check, write):
    write("profile.yaml", PROFILE)
    namespace = CLUSTER.partition("---\n")[2]
    in_team = WHOLE.replace("name: train", "name: train\n  namespace: team")

    _, (entry,) = check(f"{namespace}---\n{in_team}", "--profile", "profile.yaml")

    assert (entry["namespace"], entry["profiles"][0]["matched"]) == ("team", True)
    assert entry["source"] == "job.yaml:5"


def test_stored_policy_and_profiles_apply_by_default(check, write):
    write("cluster.yaml", f"{CLUSTER}---\n{PROFILE}---\n{POLICY}")
    huge = WHOLE.replace("gpu: 2", "gpu: 9")

    code, (entry,) = check(huge, "--cluster", "cluster.yaml", "-n", "team")
    assert (code, entry["profiles"][0]["matched"]) == (1, True)
    write("policy.yaml", "capacity: 'off'\n")
    code, (entry,) = check(huge, "--cluster", "cluster.yaml", "--policy", "policy.yaml")
    assert (entry["verdict"], entry["placement"]["never"]) == ("allowed", True)


def test_nvidias_own_file_says_how_gpus_are_shared(check, write):
    write("plugin.yaml", TIME_SLICING)
    two = POD.replace("LIMITS", "nvidia.com/gpu.shared: 2")

    code, (entry,) = check(two, "--policy", "plugin.yaml")

    assert (code, entry["findings"][0]["code"]) == (1, "LW301")
    assert check(two.replace("shared: 2", "shared: 1"), "--policy", "plugin.yaml")[0] == 0


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [
        ("--policy", "capasity: warn\n", "f:1: capasity: unknown key 'capasity'; write capacity."),
        (
            "--policy",
            "capasity: warn\nstrikt: true\n",
            "f:1: capasity: unknown key 'capasity'; write capacity. (1 more: linkwise ",
        ),
        ("--policy", "a: [\n", "f:2: not YAML"),
        (
            "--profile",
            PROFILE.replace('"name"', '"nam"'),
            "f:6: [0].nam: unknown key 'nam'; write name. (1 more:",
        ),
        ("--profile", POD, "f:2: kind: a Pod is no policy"),
    ],
)
def test_wrong_policy_is_an_error_with_line(linkwise, write, option, text, complaint):
    write("f", text)
    write("job.yaml", SHARE)

    code, out, err = linkwise("check", "job.yaml", option, "f", "-o", "json")

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


def test_unjudged_objects_are_named(linkwise, write):
    write("job.yaml", "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: r}\n")

    code, out, err = linkwise("check", "job.yaml", "-o", "json")

    report = json.loads(out)
    assert (code, report["items"]) == (3, [])
    assert report["unjudged"] == [
        {
            "source": "job.yaml:1",
            "apiVersion": "example.org/v1",
            "kind": "Trainer",
            "name": "r",
            "reason": "was not looked at",
        }
    ]
    assert err == "linkwise: job.yaml:1: Trainer (example.org/v1) was not looked at.\n"


def test_denied_exit_code_precedes_unjudged(linkwise, write):
    write("ray.yaml", "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: r}\n")
    write("bad.yaml", BAD)

    shown = linkwise("check", "ray.yaml", "bad.yaml")

    assert shown.code == 1
    assert shown.out.endswith("1 pod template: 1 denied; 1 not judged\n")
    assert linkwise("check", "ray.yaml", "-q").err.count("Trainer") == 1


def test_kinds_without_pods_are_passed_over_in_silence(linkwise, write):
    write("job.yaml", f"{PROFILE}---\n{PLAIN}")

    assert linkwise("check", "job.yaml", "--strict").err == ""


def test_table_shows_verdicts_reasons_and_changes(linkwise, write):
    write("a.yaml", BAD)
    write("b.yaml", WHOLE)
    write("profile.yaml", PROFILE)
    write("cluster.yaml", CLUSTER)

    code, out, err = linkwise(
        "check", "a.yaml", "b.yaml", "--profile", "profile.yaml", "--cluster", "cluster.yaml"
    )

    assert (code, err) == (1, "")
    assert "denied Pod default/train a.yaml:1\n" in out
    assert "  error LW101 spec.containers[0].resources.limits[aliyun.com/gpu-core" in out
    assert "    fix: Write 20 or 25." in out
    assert "  profile gold-driver does not match: namespace" in out
    assert "  change requires nodes with ack.node.gpu.schedule In (topology)" in out
    assert "  change holds the pod with gate linkwise.dev/gang" in out
    assert out.endswith("2 pod templates: 1 allowed, 1 denied; 2 warnings\n")


def test_table_shows_additions_of_profiles(linkwise, write):
    write("a.yaml", WHOLE)
    write(
        "profile.json", '[{"name": "all", "effect": {"labels": {"x/y": "1"}, "annotations": {}}}]'
    )

    out = linkwise("check", "a.yaml", "--profile", "profile.json").out

    assert "  profile all matches, adds x/y=1 (it selects every pod)" in out
    assert "  change adds label x/y=1 (profile all)" in out


def test_yaml_is_the_same_answer(linkwise, write):
    write("a.yaml", SHARE)

    as_json = json.loads(linkwise("check", "a.yaml", "-o", "json").out)

    assert yaml.safe_load(linkwise("check", "a.yaml", "-o", "yaml").out) == as_json


def test_control_characters_of_a_manifest_do_not_reach_the_terminal(linkwise, write):
    write("a.yaml", BAD.replace("name: train", 'name: "a\\e[31mb"'))

    assert "\x1b" not in linkwise("check", "a.yaml").out


def test_plugin_configs_apply_to_the_nodes_that_name_them(linkwise, write):
    files = "".join(
        f"  {name}: |-\n    sharing:\n      timeSlicing:\n"
        "        failRequestsGreaterThanOne: true\n"
        f"        resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]\n"
        for name, replicas in (("four", 4), ("two", 2))
    )
    write("plugin.yaml", f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: p}}\ndata:\n{files}")
    asks = POD.replace("LIMITS", "nvidia.com/gpu: 2")
    write("any.yaml", asks)
    selector = "spec:\n  nodeSelector: {nvidia.com/device-plugin.config: two}\n"
    write("two.yaml", asks.replace("spec:\n", selector))

    assert linkwise("check", "any.yaml", "--policy", "plugin.yaml").code == 0
    assert linkwise("check", "two.yaml", "--policy", "plugin.yaml").code == 1


@pytest.mark.parametrize("make", [workers_of, launcher_of, lambda job: job])
def test_arena_pods_with_zero_nvidia_gpus_are_allowed(check, make):
    code, entries = check(json.dumps(make(submitted())))

    assert code == 0
    assert {entry["verdict"] for entry in entries} == {"allowed"}
    assert not [finding for entry in entries for finding in entry["findings"]]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (POD.replace("LIMITS", "nvidia.com/mig-1g.5gb: 1"), "MIG devices (nvidia.com/mig-1g.5gb)"),
        (POD.replace("LIMITS", "") + "  resourceClaims: [{name: gpu}]\n", "DRA"),
        (POD.replace("LIMITS", "nvidia.com/gpu: 1, nvidia.com/gpumem: 3000"), "HAMi"),
    ],
    ids=["mig", "claim", "hami"],
)
def test_gpus_of_other_systems_are_named(check, linkwise, write, text, named):
    write("cluster.yaml", CLUSTER)
    code, (entry,) = check(text, "--cluster", "cluster.yaml")

    assert (code, entry["placement"]) == (0, None)
    assert named in entry["others"]
    assert named in linkwise("check", "job.yaml").out
    assert (entry["reason"] is None) == (entry["verdict"] != "skipped")
    assert check(PLAIN)[1][0]["others"] is None
    assert check(PLAIN)[1][0]["reason"].startswith("asks for no GPU resource")
    assert check(WHOLE)[1][0]["reason"] is None
    assert check(WHOLE)[1][0]["others"] is None


VALUES = "replicas: 2\nimage: {repository: train, tag: '1'}\n"
HELM_TEMPLATE = "{{- if .Values.gpu }}\napiVersion: v1\nkind: Pod\n{{- end }}\n"
PATCH_OF_KUSTOMIZE = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n"
)
WRONG_TYPE = POD.replace("LIMITS", "cpu: 1").replace("name: main", "name: 7")


@pytest.fixture
def folder(tmp_path):
    """Writes files into a folder with a chart, an overlay and manifests."""

    def write_files(**texts):
        for name, text in texts.items():
            path = tmp_path / "deploy" / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    return write_files


def test_the_rest_of_a_folder_is_judged_after_files_that_are_no_manifests(linkwise, folder):
    folder(
        a_good=SHARE,
        chart__templates__pod=HELM_TEMPLATE,
        chart__values=VALUES,
        kustomization="resources: [a_good.yaml]\n",
        patch=PATCH_OF_KUSTOMIZE,
        wrong=WRONG_TYPE,
        z_bad=BAD,
    )

    code, out, err = linkwise("check", "-R", "deploy")

    assert code == 2
    assert "allowed Pod default/train deploy/a_good.yaml:1" in out
    assert "denied Pod default/train deploy/z_bad.yaml:1" in out
    assert out.endswith("2 pod templates: 1 allowed, 1 denied; 5 not read\n")
    assert [line.partition(": ")[2].partition(": ")[0] for line in err.splitlines()] == [
        "deploy/chart/templates/pod.yaml:1",
        "deploy/chart/values.yaml:1",
        "deploy/kustomization.yaml:1",
        "deploy/patch.yaml:4",
        "deploy/wrong.yaml:7",
    ]


def test_a_template_of_a_helm_chart_is_named_so(linkwise, folder):
    folder(pod=HELM_TEMPLATE, values=VALUES)

    template, values = linkwise("check", "-R", "deploy").err.splitlines()

    assert template.endswith(" Of a Helm chart, pipe the output of helm template.")
    assert "Helm" not in values


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_for_scripts_are_empty_if_a_file_cannot_be_read(linkwise, folder, output):
    folder(good=SHARE, values=VALUES)

    code, out, err = linkwise("check", "-R", "deploy", "-o", output)

    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_files_that_cannot_be_read_are_errors_in_ci(linkwise, folder):
    folder(good=SHARE, values=VALUES)
    reply = "deploy/values.yaml:1: no Kubernetes object: apiVersion is missing. Add it."

    code, junit, _ = linkwise("check", "-R", "deploy", "-o", "junit")
    assert code == 2
    assert f'<error message="{reply}" type="not read" />' in junit
    assert 'tests="2"' in junit

    code, text, _ = linkwise("check", "-R", "deploy", "-o", "sarif")
    (invocation,) = json.loads(text)["runs"][0]["invocations"]
    assert (code, invocation["executionSuccessful"]) == (2, False)
    assert [n["message"]["text"] for n in invocation["toolExecutionNotifications"]] == [reply]

    code, commands, _ = linkwise("check", "-R", "deploy", "-o", "github")
    assert (code, commands) == (2, f"::error title=not read::{reply}\n")


def test_several_missing_files_are_each_named(linkwise):
    code, out, err = linkwise("check", "a.yaml", "b.yaml")

    assert (code, out) == (2, "")
    assert [line.split(":")[1] for line in err.splitlines()] == [" a.yaml", " b.yaml"]


@pytest.mark.parametrize("glob", ["chart", "chart/*", "values.yaml", "val*", "chart/values.yaml"])
def test_excluded_files_of_a_folder_are_not_read(linkwise, folder, glob):
    folder(good=SHARE, chart__values=VALUES)

    code, out, err = linkwise("check", "-R", "deploy", "--exclude", glob)

    assert (code, err) == (0, "")
    assert out.endswith("1 pod template: 1 allowed\n")


def test_excluded_files_are_not_read_where_they_are_named(linkwise, folder):
    folder(good=SHARE, values=VALUES)
    files = ("deploy/good.yaml", "deploy/values.yaml")

    assert linkwise("check", *files, "--exclude", "values.yaml").code == 0
    assert linkwise("check", *files, "--exclude", "*.yaml").err == (
        "linkwise: no file is left: --exclude leaves out all 2. Name a file that no glob matches.\n"
    )
    assert linkwise("check", *files, "--exclude", "").code == 2


def test_a_simulation_is_not_run_on_a_part_of_the_files(linkwise, folder, write):
    folder(good=SHARE, values=VALUES)
    write("cluster.yaml", CLUSTER)
    command = ("simulate", "-R", "deploy", "--cluster", "cluster.yaml")

    code, out, err = linkwise(*command)

    assert (code, out) == (2, "")
    assert err.startswith("linkwise: deploy/values.yaml:1: no Kubernetes object")
    assert linkwise(*command, "--exclude", "values.yaml").code == 0


def test_the_reason_of_skipped_is_shown(linkwise, write):
    write("job.yaml", PLAIN)

    assert "Asks for no GPU resource, and has no label of a compute class" in (
        linkwise("check", "job.yaml").out
    )


def test_a_label_for_cards_alone_is_a_finding(check):
    labelled = PLAIN.replace("name: train", 'name: train\n  labels: {aliyun.com/gpu-count: "2"}')

    code, (entry,) = check(labelled)

    assert (code, entry["verdict"]) == (0, "allowed")
    assert [finding["code"] for finding in entry["findings"]] == ["LW120"]
    assert check(labelled, "--strict")[0] == 3


def test_the_claim_that_would_be_made_is_shown(check, linkwise, write):
    by_claim = POD.replace("name: train", 'name: train\n  labels: {linkwise.dev/claims: "true"}')
    by_claim = by_claim.replace("LIMITS", "nvidia.com/gpu: 4")

    _, (entry,) = check(by_claim)
    _, (other,) = check(WHOLE)

    assert "claim" not in other
    (reference,) = entry["patched"]["spec"]["resourceClaims"]
    toleration = {"key": "linkwise.dev/placed", "operator": "Exists", "effect": "NoSchedule"}
    exactly = {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 4,
        "tolerations": [toleration],
    }
    assert entry["claim"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": reference["resourceClaimName"], "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "container-0", "exactly": exactly}]}},
    }
    write("job.yaml", by_claim)
    text = linkwise("check", "job.yaml").out
    assert "claim request container-0: 4 of class gpu.nvidia.com, by UUID once they are" in text


def test_labels_of_a_workload_are_warnings(linkwise, write):
    write(
        "job.yaml",
        "apiVersion: apps/v1\nkind: Deployment\n"
        "metadata: {name: web, labels: {alibabacloud.com/compute-class: gpu}}\n"
        "spec: {template: {spec: {containers: [{name: main}]}}}\n",
    )

    code, _, err = linkwise("check", "job.yaml", "--strict")

    assert code == 3
    assert "job.yaml:3: label alibabacloud.com/compute-class has no effect here" in err
