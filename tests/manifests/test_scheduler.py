import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from linkwise.cluster import keys
from linkwise.policy.document import Policy, parse_policy
from linkwise.runtime.http.types import Route
from scorer.__main__ import LEASE
from scorer.api.extender import Extender
from scorer.settings import Settings
from scorer.timings import Timings

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
    (config_map,) = of_kind("ConfigMap")
    return yaml.safe_load(config_map["data"]["config.yaml"])


def extender():
    (extender,) = configuration()["extenders"]
    return extender


def containers():
    (deployment,) = of_kind("Deployment")
    return {item["name"]: item for item in deployment["spec"]["template"]["spec"]["containers"]}


def settings():
    environment = {item["name"]: item["value"] for item in containers()["scorer"]["env"]}
    return Settings.read({"KUBERNETES_SERVICE_HOST": "192.0.2.1", **environment})


def test_overlay_lists_every_file_of_its_folder():
    listed = overlay()["resources"] + [
        item["path"] for item in overlay()["patches"] if "path" in item
    ]

    assert {*listed} == {"../base"} | {path.name for path in FOLDER.glob("*.yaml")} - {
        "kustomization.yaml"
    }


def test_extender_has_the_address_and_routes_of_the_scorer():
    verbs = {f"/{extender()[verb]}" for verb in extender() if verb.endswith("Verb")}
    address = urlsplit(extender()["urlPrefix"])

    routes: list[Route] = Extender(None, None).routes()
    assert verbs == {route.path for route in routes}
    assert (address.scheme, address.hostname, address.path) == ("http", "127.0.0.1", "")
    assert address.port == settings().extender_port
    assert extender()["nodeCacheCapable"] is True
    assert extender()["ignorable"] is False


def test_timeout_of_the_scheduler_exceeds_those_of_the_scorer():
    seconds = int(re.fullmatch(r"(\d+)s", extender()["httpTimeout"])[1])

    assert seconds > Timings().bind_timeout + Timings().pod_watch_timeout
    assert seconds > settings().write_seconds


def test_extender_manages_all_placed_resources_and_the_scheduler_counts_them():
    managed = {item["name"]: item["ignoredByScheduler"] for item in extender()["managedResources"]}

    assert managed == dict.fromkeys(keys.RESOURCES, False)


def test_scheduler_and_scorer_have_equal_lease_settings():
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


def test_policy_and_scheduler_profile_have_one_name():
    (text,) = (
        step["value"]
        for patch in overlay()["patches"]
        if patch.get("target", {}).get("kind") == "ConfigMap"
        for step in yaml.safe_load(patch["patch"])
    )
    placement = parse_policy(text).placement

    assert placement.mode == "scheduler"
    assert [placement.scheduler_name] == [
        item["schedulerName"] for item in configuration()["profiles"]
    ]
    assert parse_policy(text).model_copy(update={"placement": Policy().placement}) == Policy()


def test_account_of_the_scorer_has_the_roles_of_a_scheduler():
    bindings = of_kind("ClusterRoleBinding") + of_kind("RoleBinding")

    assert {item["roleRef"]["name"] for item in bindings} == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        "linkwise-scheduler",
    }
    for item in bindings:
        assert item["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": "linkwise-scorer",
                "namespace": keys.POLICY_NAMESPACE,
            }
        ]
    (role,) = of_kind("Role")
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == ([LEASE], ["update"])


def test_scheduler_reads_the_mounted_file_without_privileges():
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
def test_scorer_does_not_use_the_host_network(folder):
    # Leadership follows the host name, and two pods of one node would have the same.
    for deployment in of_kind("Deployment", folder):
        assert "hostNetwork" not in deployment["spec"]["template"]["spec"]
