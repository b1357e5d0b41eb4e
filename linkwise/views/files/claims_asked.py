"""Reads what the ResourceClaimTemplates and ResourceClaims among objects ask for."""

from collections.abc import Iterable, Mapping

from linkwise.cluster.allocations.device_claim import StoredClaim
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.requests.user_claims.claim_spec import Asked, TemplateObject, asked_of
from linkwise.cluster.requests.user_claims.device_class import CLASSES_OF_DRIVER, DeviceClass
from linkwise.cluster.requests.user_claims.pod_claims import CLAIM, TEMPLATE, ClaimSource
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value


def read_claims_asked(
    objects: Iterable[Value], namespace: str
) -> Mapping[tuple[str, ClaimSource], Asked]:
    """Return what templates and claims ask for, by namespace.

    The classes of NVIDIA's driver are as that installs them, unless the objects have others.

    Args:
        objects: Kubernetes objects.
        namespace: Of templates and claims that name none.

    Raises:
        InputError: A template, claim or class is no such object; one line for users.
    """
    classes = {**CLASSES_OF_DRIVER}
    templates: list[TemplateObject] = []
    claims: list[StoredClaim] = []
    for value in objects:
        kind = value.need("kind").plain
        if kind == "DeviceClass":
            found = read_as(DeviceClass, without_nulls(value.mapping()), value)
            classes[found.metadata.name] = found
        elif kind == TEMPLATE:
            templates.append(read_as(TemplateObject, without_nulls(value.mapping()), value))
        elif kind == CLAIM:
            claims.append(read_as(StoredClaim, without_nulls(value.mapping()), value))

    def key(metadata: Metadata, kind: str) -> tuple[str, ClaimSource]:
        return metadata.namespace or namespace, ClaimSource(kind, metadata.name)

    made = {key(one.metadata, TEMPLATE): asked_of(one.claim_spec, classes) for one in templates}
    return made | {key(one.metadata, CLAIM): one.asked(classes) for one in claims}
