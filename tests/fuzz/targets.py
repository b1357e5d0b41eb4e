"""Fuzz targets: each function takes any bytes, and raises only if the code is wrong.

Errors that a reader states in its docstring are answers. Everything else is a defect, also what a
target checks itself: that a patch applies, and that what was renewed needs no renewal.
"""

from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from zlib import crc32

import jsonpatch
import msgspec
from fuzz.claims_node import devices
from fuzz.files import cluster, kubeconfig
from fuzz.slow import review_is_bounded
from fuzz.volumes import volumes
from fuzz.watched_kinds import objects
from google.protobuf.message import DecodeError
from support.admission import review_response
from support.builders import a_node, a_pcie_machine
from support.gpu_readings import reading

from agent.audit.processes import parse_cgroup, parse_start, printable
from agent.binding.cdi_spec import Edits, SpecError, encode_spec, parse_spec
from agent.binding.container_spec import Binding, container_spec
from agent.binding.container_spec import read_binding as read_binding_file
from agent.binding.gpu_edits import edits_of, problem_of
from agent.binding.names import device_name
from agent.driver.machine import machine_of, pair_bandwidth
from agent.driver.reading import DriverError
from agent.driver.topo_text import processes_in, read_texts
from agent.kubelet.api.deviceplugin_pb2 import AllocateRequest, PreStartContainerRequest
from agent.kubelet.api.podresources_pb2 import ListPodResourcesResponse
from agent.kubelet.checkpoint import read_checkpoint
from agent.kubelet.pod_resources import containers_of
from certs.__main__ import KEY_SOURCE
from certs.authorities import read_authorities
from certs.leaf import Server, read_leaf
from certs.pem import ContentError
from certs.rotation import IssuancePolicy, next_transition
from certs.snapshot import Snapshot, Stored
from linkwise.admission.dry_run.dryrun import decode_result, dry_run_body, encode_dry_run
from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.allocations.foreign import read_foreign
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import RecordError, parse_record
from linkwise.cluster.keys import GPU_WHOLE
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.topology_configmap import read_published
from linkwise.cluster.objects.pod import Pod
from linkwise.manifest.value import InputError
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import snapshot_of
from linkwise.policy.active_config import POLICY, PROFILES, ConfigSource
from linkwise.policy.document import parse_plugin_config, parse_policy
from linkwise.policy.lint import lint, lint_plugin_config
from linkwise.policy.problem import PolicyError
from linkwise.policy.profile import parse_profiles
from linkwise.policy.sharing import SharingGroup, shared_by
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.errors import UNDECODABLE
from linkwise.topology.catalogue import NAMES
from linkwise.topology.errors import TopologyError
from linkwise.topology.read import read_machine
from scorer.extender.wire import WireError, read_binding, read_candidates, read_preempt
from webhook.config_validation import (
    ConfigReview,
    config_response,
    decode_problems,
    lint_text,
    read_config_review,
)
from webhook.review import API_VERSION, KIND, ProtocolError

Target = Callable[[bytes], None]

_POLICIES = tuple(
    PolicySnapshot(parse_policy(policy), parse_profiles(profiles))
    for policy in (
        "",
        "placement: {mode: scheduler}\nsharing: {computeByMps: true}\nstrict: false\n"
        "containers: {gpuInjection: runtimeClass}",
        "containers: {gpuInjection: nri}\nvisibleDevices: deny\n"
        "gangs: {nonPreemptingClasses: {high: waits}}\nprofilesAll: true",
    )
    for profiles in ("[]", '[{"name": "a", "effect": {"labels": {"b": "c"}}}]')
)
_MACHINE = a_pcie_machine(4, socket=2)
_NODES = (
    a_node("n1", _MACHINE),
    a_node("n2", _MACHINE, mode="core_mem", card_memory=16),
    a_node("n3", _MACHINE, mode="timeslice"),
)
_TABLES = snapshot_of(ledger_of(_NODES, ())).tables
_READING = reading()
_BINDING = Binding(
    "team", "pod", "u1", "main", GPU_WHOLE, frozenset({"a", "b"}), (GPUShare(1, "GPU-1"),)
)
_LARGEST_ANSWER = 3 << 20
_NOW, _DAY = 1_800_000_000.0, 86_400
_SERVER = Server("webhook", "cert", ("a.ns.svc", "127.0.0.1"))
_TERMS = IssuancePolicy((_SERVER,), 30 * _DAY, 360 * _DAY, 600)


def review(data: bytes) -> None:
    policy = _POLICIES[crc32(data) % len(_POLICIES)]
    with suppress(ProtocolError):
        reply = review_response(
            data, namespaces={"default": {}}, policy=policy, capacity=Capacity()
        )
        patch = msgspec.json.decode(reply)["response"].get("patch")
        if patch is not None:
            _apply(b64decode(patch).decode(), data)


def policy(data: bytes) -> None:
    text = _text(data)
    lint(text, machines=NAMES)
    _validate(POLICY, text)
    with suppress(PolicyError):
        PolicySnapshot(parse_policy(text))


def profile(data: bytes) -> None:
    text = _text(data)
    _validate(PROFILES, text)
    with suppress(PolicyError):
        PolicySnapshot(profiles=parse_profiles(text))


def plugin(data: bytes) -> None:
    text = _text(data)
    lint_plugin_config(text)
    with suppress(PolicyError):
        list(shared_by(SharingGroup(config=parse_plugin_config(text))))


def manifest(data: bytes) -> None:
    with suppress(InputError):
        namespaces = defaultdict[str, Mapping[str, str]](dict)
        found = decode_result(dry_run_body(data, "default", namespaces, _POLICIES[0], Capacity()))
        encode_dry_run(found, "no scorer was asked")


def matrix(data: bytes) -> None:
    for partial in (False, True):
        with suppress(TopologyError):
            read_machine(_text(data), partial=partial)


def nccl(data: bytes) -> None:
    matrix(data)


def published(data: bytes) -> None:
    read_published(_texts(data))


def record(data: bytes) -> None:
    annotations = _texts(data)
    for read in (parse_record, read_foreign):
        with suppress(RecordError):
            read(annotations)


def extender(data: bytes) -> None:
    for read in (read_candidates, read_binding, read_preempt):
        with suppress(WireError):
            read(data)


def secret(data: bytes) -> None:
    """Data of each Secret of certs, its values not yet in base 64."""
    stored = {key: b64encode(text.encode()).decode() for key, text in _texts(data).items()}
    leaf, authorities = Stored(version="1"), Stored(version="1")
    with suppress(ContentError):
        leaf = Stored(read_leaf(stored), "", "1")
    with suppress(ContentError):
        authorities = Stored(read_authorities(stored), "", "1")
    snapshot = Snapshot({}, {_SERVER: leaf}, authorities)
    change = next_transition(snapshot, _TERMS, _NOW, 0, KEY_SOURCE)
    assert change is not None or authorities.value is not None


def watched(data: bytes) -> None:
    """A pod as a watch brings it, on its node and as one that is to be placed."""
    with suppress(*UNDECODABLE):
        pod = msgspec.json.decode(data, type=Pod)
        ledger = ledger_of(_NODES, [pod], migrate=True)
        found, member = pod_info(pod), new_member(pod, "default")
        if (found.waiting or found.ungated) and member.violation is None:
            members = [_renamed(member, f"default/{i}") for i in range(3)]
            for count in (1, len(members)):
                plan(snapshot_of(ledger, _TABLES), members[:count])


def cdi(data: bytes) -> None:
    """A CDI specification, of NVIDIA's toolkit or of the agent."""
    with suppress(SpecError):
        assert read_binding_file(data).device
    with suppress(SpecError):
        spec = parse_spec(data)
        assert parse_spec(encode_spec(spec)) == spec
        problem_of(spec, _READING)
        edits = edits_of(spec, _READING.gpus)
        written = encode_spec(container_spec(_BINDING, edits, Edits(), spec.cdi_version))
        assert parse_spec(written).devices[0].name == _BINDING.device
        assert read_binding_file(written) == _BINDING


def node(data: bytes) -> None:
    """What the agent reads on its node: of the kubelet, the kernel and `nvidia-smi`."""
    text, texts = _text(data), _texts(data)
    read_checkpoint(data)
    parse_cgroup(text)
    parse_start(text)
    assert printable(text).isprintable()
    with suppress(DriverError, TopologyError):
        found = read_texts(*(texts.get(key, "") for key in ("query", "topo", "banner")))
        processes_in(texts.get("processes", ""), found.gpus)
        pair_bandwidth(machine_of(found, ()))
    with suppress(DecodeError):
        containers_of(ListPodResourcesResponse.FromString(data))
    with suppress(DecodeError):
        for container in AllocateRequest.FromString(data).container_requests:
            device_name(GPU_WHOLE, container.devices_ids)
    with suppress(DecodeError):
        device_name(GPU_WHOLE, PreStartContainerRequest.FromString(data).devices_ids)


def slow(data: bytes) -> None:
    """A description of a large pod; `fuzz.slow` searches for those whose review is most work."""
    review_is_bounded(data)


def _renamed(member: Member, name: str) -> Member:
    """Return a member as of another pod; an API server gives no two pods the same uid."""
    metadata = msgspec.structs.replace(member.pod.metadata, uid=name)
    return replace(member, name=name, pod=msgspec.structs.replace(member.pod, metadata=metadata))


def _validate(home: ConfigSource, text: str) -> None:
    """Ask `/validate` about a text; an API server reads no answer above 3 MiB."""
    request = {
        "uid": "42",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": "CREATE",
        "namespace": home.namespace,
        "name": home.name,
        "object": {"data": {home.key: text}},
    }
    asked = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
    question = read_config_review(msgspec.json.encode(asked))
    if isinstance(question, ConfigReview):
        question = config_response(question, decode_problems(lint_text(home.key, question.text)))
    size = len(question.body)
    assert size < _LARGEST_ANSWER, f"an answer of {size} bytes"


def _apply(patch: str, data: bytes) -> None:
    # `handle` decodes only what it reads; an API server sends nothing that is not JSON.
    with suppress(*UNDECODABLE):
        pod = msgspec.json.decode(data)["request"].get("object", {})
        jsonpatch.apply_patch(pod, patch, in_place=True)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _texts(data: bytes) -> dict[str, str]:
    """Return a map of texts, such as a ConfigMap's data; empty where the bytes are none."""
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except UNDECODABLE:
        return {}


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        *(review, policy, profile, plugin, manifest, matrix),
        *(nccl, published, record, extender, secret, watched),
        *(cdi, node, objects, devices, volumes, cluster, kubeconfig, slow),
    )
}
