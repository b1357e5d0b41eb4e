"""The fields of pods that `check` knows are those of a real API server."""

from linkwise.manifest.pod_fields import POD_SPEC, pod_fields

_CORE = "/openapi/v3/api/v1"
_PREFIX = "#/components/schemas/"


def served(api):
    """Return the fields of each type of a Pod's spec, each with the type of its value."""
    schemas = api.get(_CORE)["components"]["schemas"]
    found, pending = {}, [f"io.k8s.api.core.v1.{POD_SPEC}"]
    while pending:
        name = pending.pop()
        if name not in found:
            properties = schemas[name].get("properties", {})
            found[name] = {key: reference(value) for key, value in properties.items()}
            pending += filter(None, found[name].values())
    return {
        short(name): {
            key: short(kind) if kind and found[kind] else "" for key, kind in fields.items()
        }
        for name, fields in found.items()
        if fields
    }


def reference(schema):
    """Return the type to which a schema refers, of its items where it is a list; empty: none."""
    if "items" in schema:
        return reference(schema["items"])
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            return part["$ref"].removeprefix(_PREFIX)
    return ""


def short(name):
    return name.rpartition(".")[2]


def test_the_fields_of_pods_are_those_of_the_api_server(plane):
    fields, known = served(plane.api), pod_fields()

    missing = {
        (name, key)
        for name, types in fields.items()
        for key, kind in types.items()
        if known.get(name, {}).get(key) != kind
    }
    more = {(name, key) for name in known for key in known[name]} - {
        (name, key) for name in fields for key in fields[name]
    }

    assert missing == set()
    # The table has those of the next version, too; a few, else it is that of another one.
    assert len(more) < 20
