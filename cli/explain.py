"""`linkwise explain`: why a pod or a gang is where it is, or why it is nowhere yet."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from msgspec import Struct, ValidationError, convert

from cli import explain_json, explain_text
from cli.current import Current
from cli.explanation import Explained, Scene, State, explain_gang, explain_pod
from cli.output import Format, emit, say, warn
from cluster.pod import Metadata, Owner
from policy.lines import without_nulls
from scorer.gangobject import Gang
from scorer.gangs import Owners, Unit
from scorer.owner import Declaration, Makes, makes_of, members_of, path_of
from scorer.snapshot import Snapshot, snapshot_of
from webhook.manifest.typed import read_as
from webhook.manifest.value import InputError, Value

Kind = Literal["pod", "gang"]


class _Object(Struct, frozen=True):
    metadata: Metadata = Metadata()


def show_explanation(now: Current, kind: Kind, name: str, output: Format, *, clock: float) -> int:
    """Explain; return the exit code: 1 while it waits.

    Args:
        now: The cluster.
        kind: What the name names.
        name: `namespace/name`, or the name alone.
        output: How to answer.
        clock: The time [s since 1970].

    Raises:
        InputError: There is nothing of that name.
    """
    home, _, rest = name.rpartition("/")
    namespace = home or now.namespace
    scene = scene_of(now, clock)
    found: Sequence[Explained]
    if kind == "gang":
        found = explain_gang(scene, namespace, rest)
    else:
        alone = explain_pod(scene, namespace, rest)
        found = [alone] if alone else []
    if not found:
        raise InputError(
            f"there is no {kind} {namespace}/{rest}. Write NAMESPACE/NAME, or name a namespace "
            "with -n."
        )
    for warning in now.warnings:
        warn(warning)
    if output is Format.TABLE:
        for place, one in enumerate(found):
            if place:
                say()
            explain_text.show(one)
    else:
        documents = [explain_json.document(one) for one in found]
        emit(documents if kind == "gang" else documents[0], output)
    return 1 if any(one.state is State.WAITS for one in found) else 0


def scene_of(now: Current, clock: float) -> Scene:
    """Return what the planner would see of a cluster."""
    policy = now.policy.policy
    snapshot: Snapshot = replace(
        snapshot_of(now.cluster.ledger),
        placement=policy.placement.strategy,
        domains=policy.gangs.domains,
    )

    def aged(unit: Unit) -> bool:
        try:
            since = datetime.fromisoformat(unit.since).timestamp()
        except ValueError:
            return False
        return clock - since >= policy.gangs.ageing_minutes * 60

    pods = {
        (pod.metadata.namespace or "default", pod.metadata.name): pod for pod in now.cluster.pods
    }
    return Scene(snapshot, pods, _owners(now.objects), _gangs(now), aged)


def _owners(objects: Sequence[Value]) -> Owners:
    """Return what the workloads among objects tell of gangs."""
    above: dict[str, Owner | None] = {}
    declared: dict[str, int] = {}
    makes: dict[str, Makes] = {}
    for value in objects:
        plain = without_nulls(value.mapping())
        metadata = read_as(_Object, plain, value).metadata
        kind, version = value.need("kind").text(), value.need("apiVersion").text()
        owner = Owner(api_version=version, kind=kind, name=metadata.name, uid=metadata.uid)
        if path_of(owner, "") is None:
            continue
        owners = metadata.owner_references or ()
        above[metadata.uid] = next((one for one in owners if one.controller), None)
        declaration = read_as(Declaration, plain, value)
        if members := members_of(declaration, metadata.uid):
            declared[metadata.uid] = members
            makes[metadata.uid] = makes_of(declaration, owner)
    return Owners(above, declared, makes)


def _gangs(now: Current) -> dict[tuple[str, str], Gang]:
    found: dict[tuple[str, str], Gang] = {}
    for plain in now.gangs:
        try:
            gang = convert(plain, Gang)
        except ValidationError:
            # Another version's; the engine says as much.
            continue
        found[gang.metadata.namespace, gang.metadata.name] = gang
    return found
