import json

import jsonschema
import pytest
import yaml
from support.certs_world import CONFIGURATIONS, LEAVES, STATUS, WAIT, World, run

from linkwise.cli.schema import KINDS

NAMES = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@pytest.fixture
def world():
    made = World()
    made.settle()
    # The state is published from what was read, so once more.
    made.settle()
    return made


@pytest.fixture
def status(linkwise, write, capsys):
    """Returns the status of a world, as its objects would be exported."""

    def call(world, *options, kinds=NAMES):
        objects = [{"apiVersion": "v1", "kind": "ConfigMap", **world.objects[STATUS]}]
        for kind, path in zip(NAMES, CONFIGURATIONS, strict=True):
            if kind in kinds:
                version = "admissionregistration.k8s.io/v1"
                objects.append({"apiVersion": version, "kind": kind, **world.objects[path]})
        write("dump.yaml", yaml.safe_dump_all(objects))
        # The log of the world.
        capsys.readouterr()
        return linkwise("certs", "status", "dump.yaml", *options)

    return call


def test_status_shows_phase_chain_expiry_and_what_happens_next(status, world):
    ran = status(world)
    assert (ran.code, ran.err) == (0, "")
    assert "Phase stable since 2027-01-15T08:00:00Z: no rotation" in ran.out
    assert "current  2027-01-15T07:00:00Z  2027-01-15T10:30:00Z" in ran.out
    assert "linkwise-webhook-cert" in ran.out
    assert "Next Renew certificates of servers at 2027-01-15T08:33:20Z." in ran.out


@pytest.mark.parametrize(
    ("waits", "phase", "text"),
    [(0, "wait", "switch to the next CA"), (1, "retire", "remove the previous CA")],
)
def test_status_of_a_rotation_names_both_cas_and_the_next_step(status, world, waits, phase, text):
    replica = world.replica()
    world.request_rotation()
    world.settle(replica)
    for _ in range(waits):
        world.monotonic += WAIT
        world.settle(replica)
    document = json.loads(status(world, "-o", "json").out)
    assert (document["phase"], document["next"]["text"]) == (phase, text)
    assert document["next"]["at"]
    both = {each["sha256"] for each in document["authorities"]}
    assert len(both) == 2
    assert all(set(each["authorities"]) == both for each in document["registrations"])


@pytest.mark.parametrize("bundle", ["", "%", "aGVsbG8="], ids=["none", "not base 64", "not PEM"])
def test_registration_that_trusts_nothing_is_a_problem(status, world, bundle):
    world.overwrite(CONFIGURATIONS[0], bundle)
    ran = status(world)
    assert ran.code == 1
    assert "its caBundle lacks the CA of a server" in ran.out


def test_unusable_certificate_is_a_problem(status, world):
    world.objects[LEAVES[1]]["data"]["tls.crt"] = "%"
    # One pass publishes what it has read; the next one repairs it.
    run(world.replica().reconcile())
    document = json.loads(status(world, "-o", "json").out)
    assert document["problems"] == ["scorer: tls.crt is not base 64: Only base64 data is allowed"]


def test_registration_that_is_not_in_the_files_is_not_a_problem(status, world):
    ran = status(world, kinds=NAMES[:1])
    assert ran.code == 0
    assert "not read" in ran.out


def test_document_is_what_its_schema_says(status, world):
    ran = status(world, "-o", "json")
    document = json.loads(ran.out)
    assert document["kind"] == "CertificateReport"
    jsonschema.validate(document, KINDS["CertificateReport"]())
    assert yaml.safe_load(status(world, "-o", "yaml").out) == document


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param({}, "the ConfigMap linkwise-certs is empty", id="empty"),
        pytest.param({"status.json": "{"}, "is not of this version", id="no JSON"),
        pytest.param({"status.json": "{}"}, "is not of this version", id="without fields"),
    ],
)
def test_unreadable_state_is_refused_with_its_place(status, world, data, problem):
    world.objects[STATUS]["data"] = data
    ran = status(world)
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert "dump.yaml:" in ran.err


def test_files_without_the_state_are_refused(linkwise, write):
    write("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")
    ran = linkwise("certs", "status", "other.yaml")
    assert ran.code == 2
    assert "there is no ConfigMap linkwise-certs in these files" in ran.err
