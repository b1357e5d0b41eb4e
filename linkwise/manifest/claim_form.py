"""Check the form of the requests in ResourceClaims and ResourceClaimTemplates. Pure.

Since v1beta2 of their API, a request has its fields under `exactly` or `firstAvailable`.
"""

from linkwise.manifest.value import Value

_PATHS = {
    "ResourceClaim": ("spec", "devices", "requests"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "requests"),
}
_GROUP = "resource.k8s.io"
_FLAT = frozenset({"v1alpha3", "v1beta1"})
_NESTED = frozenset({"v1beta2", "v1"})


def check_claim_form(document: Value) -> None:
    """Raise an error for a request in the form of another version, which the API refuses.

    Raises:
        InputError: The line of the request, and how to write it.
    """
    path = _PATHS.get(str(document.need("kind").plain))
    group, _, version = str(document.need("apiVersion").plain).partition("/")
    if path is None or group != _GROUP:
        return
    value: Value | None = document
    for key in path:
        value = value.child(key) if value is not None and isinstance(value.plain, dict) else None
    if value is None or not isinstance(value.plain, list):
        return
    for request in value.items():
        fields = request.plain if isinstance(request.plain, dict) else {}
        name = request.child("deviceClassName") if "deviceClassName" in fields else None
        if name is not None and version in _NESTED:
            raise name.error(
                f"{name.words} is a field of {_GROUP}/v1beta1: {version} has it under exactly. "
                f"Write exactly: {{deviceClassName: {str(name.plain)[:63]}}}."
            )
        nested = request.child("exactly") if "exactly" in fields else None
        if nested is not None and version in _FLAT:
            raise nested.error(
                f"{nested.words} is unknown in {_GROUP}/{version}. Write its fields in the request "
                f"itself, or apiVersion: {_GROUP}/v1."
            )
