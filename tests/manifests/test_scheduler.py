import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from cluster import keys
from policy.document import Policy, parse_policy
from runtime.http.types import Route
from scorer.__main__ import LEASE
from scorer.api.extender import Extender
from scorer.extender.bind import _LOOK, _LOOKS, _PATIENCE
from scorer.settings import read_settings

MANIFESTS = Path(__file__).parents[2] / "manifests"
FOLDER = MANIFESTS / "scheduler"


@cache
def documents(folder=FOLDER):
    return [
        document
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def of_kind(kind, folder=FOLDER):
    return [document for document in documents(folder) if document["kind"] == kind]


def overlay():
    return yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))


def configuration():
    (found,) = of_kind("ConfigMap")
    return yaml.safe_load(found["data"]["config.yaml"])


def extender():
    (found,) = configuration()["extenders"]
    return found


def containers():
    (deployment,) = of_kind("Deployment")
    return {one["name"]: one for one in deployment["spec"]["template"]["spec"]["containers"]}


def settings():
    environment = {one["name"]: one["value"] for one in containers()["scorer"]["env"]}
    return read_settings({"KUBERNETES_SERVICE_HOST": "192.0.2.1", **environment})


def test_the_overlay_names_every_file_of_its_folder():
    listed = overlay()["resources"] + [one["path"] for one in overlay()["patches"] if "path" in one]

    assert {*listed} == {"../base"} | {path.name for path in FOLDER.glob("*.yaml")} - {
        "kustomization.yaml"
    }


def test_the_scheduler_asks_what_the_scorer_serves_and_where():
    verbs = {f"/{extender()[verb]}" for verb in extender() if verb.endswith("Verb")}
    address = urlsplit(extender()["urlPrefix"])

    routes: list[Route] = Extender(None, None).routes()
    assert verbs == {route.path for route in routes}
    assert (address.scheme, address.hostname, address.path) == ("http", "127.0.0.1", "")
    assert address.port == settings().extender_port
    assert extender()["nodeCacheCapable"] is True
    assert extender()["ignorable"] is False


def test_who_asks_waits_longer_than_who_answers_lets_it_wait():
    seconds = int(re.fullmatch(r"(\d+)s", extender()["httpTimeout"])[1])

    assert seconds > _PATIENCE + _LOOK * _LOOKS
    assert seconds > settings().write_seconds


def test_the_scheduler_asks_about_all_that_is_placed_and_counts_it_too():
    managed = {one["name"]: one["ignoredByScheduler"] for one in extender()["managedResources"]}

    assert managed == dict.fromkeys(set(keys.RESOURCES) - {keys.NVIDIA_GPU}, False)


def test_the_scheduler_holds_the_lease_that_the_scorer_follows_as_long_as_it_believes():
    election = configuration()["leaderElection"]

    assert election["leaderElect"] is True
    assert (election["resourceNamespace"], election["resourceName"]) == (
        keys.POLICY_NAMESPACE,
        LEASE,
    )
    assert {
        "leaseDuration": f"{settings().lease_seconds}s",
        "renewDeadline": f"{settings().renew_seconds:g}s",
        "retryPeriod": f"{settings().retry_seconds:g}s",
    }.items() <= election.items()


def test_the_policy_sends_pods_to_the_scheduler_of_that_name():
    (text,) = (
        step["value"]
        for patch in overlay()["patches"]
        if patch.get("target", {}).get("kind") == "ConfigMap"
        for step in yaml.safe_load(patch["patch"])
    )
    placement = parse_policy(text).placement

    assert placement.mode == "scheduler"
    assert [placement.scheduler_name] == [
        one["schedulerName"] for one in configuration()["profiles"]
    ]
    assert parse_policy(text).model_copy(update={"placement": Policy().placement}) == Policy()


def test_both_containers_have_one_account_which_may_do_what_a_scheduler_does():
    bindings = of_kind("ClusterRoleBinding") + of_kind("RoleBinding")

    assert {one["roleRef"]["name"] for one in bindings} == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        "linkwise-scheduler",
    }
    for one in bindings:
        assert one["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": "linkwise-scorer",
                "namespace": keys.POLICY_NAMESPACE,
            }
        ]
    (role,) = of_kind("Role")
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == ([LEASE], ["update"])


def test_the_scheduler_reads_the_file_that_is_mounted_and_runs_as_nobody():
    scheduler = containers()["scheduler"]
    (deployment,) = of_kind("Deployment")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    (mount,) = scheduler["volumeMounts"]
    (config,) = of_kind("ConfigMap")

    assert f"--config={mount['mountPath']}/config.yaml" in scheduler["command"]
    assert (volume["name"], volume["configMap"]["name"]) == (
        mount["name"],
        config["metadata"]["name"],
    )
    assert scheduler["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("folder", [FOLDER, MANIFESTS / "base"], ids=["scheduler", "base"])
def test_no_pod_of_the_scorer_uses_its_nodes_network(folder):
    # Leadership follows a host's name, and two pods of one node would have the same.
    for deployment in of_kind("Deployment", folder):
        assert "hostNetwork" not in deployment["spec"]["template"]["spec"]
