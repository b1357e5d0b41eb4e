"""`linkwise schema`: prints the JSON Schema of each document for scripts, and of the policy.

Schemas are generated from the types that the commands encode and decode.
"""

import json
from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from msgspec.json import schema, schema_components
from msgspec.structs import fields

from linkwise.admission.dry_run.dryrun import PATH
from linkwise.cli.policy_lint import LintReport
from linkwise.cluster.keys import CLI_API_VERSION
from linkwise.policy.document import Policy
from linkwise.views.analysis.certificates import CertificateReport
from linkwise.views.analysis.check_report import CheckReport
from linkwise.views.live.dry_run_response import DryRun
from linkwise.views.live.snapshot import Snapshot
from linkwise.views.output.document import Document
from linkwise.views.render.explain_json import Explanation
from linkwise.views.render.inspect_json import Inspection
from linkwise.views.render.replay_json import Replay
from linkwise.views.render.simulate_json import Simulation
from linkwise.views.render.slots import Slots
from linkwise.views.render.topology_json import Choice, MachineList, MachineReport

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ANSWERS: tuple[type[Document], ...] = (
    CheckReport,
    Simulation,
    Choice,
    MachineReport,
    MachineList,
    Inspection,
    Slots,
    Explanation,
    LintReport,
    Snapshot,
    CertificateReport,
    Replay,
)
_REFUSALS = {
    "400": "The body cannot be read; one line with its place.",
    "401": "No token, or one that was not made for the audience `linkwise`.",
    "403": "The caller may not create pods in one of the namespaces.",
    "413": "The body is too large.",
    "415": "Another content type, or compressed.",
    "503": "The webhook is not ready or busy; try again in a second.",
}

Schema = dict[str, Any]


def schema_text(kind: str) -> str:
    """Return the schema of a kind, as JSON text."""
    return f"{json.dumps(KINDS[kind](), indent=2, ensure_ascii=False)}\n"


def _document_schema(kind: type[Document]) -> Schema:
    generated = schema(kind)
    name = _kind_of(kind)
    # A document has its version and every field, except those that may be absent.
    own = generated["$defs"][kind.__name__]
    own["properties"]["apiVersion"] = {"const": CLI_API_VERSION}
    always = [each.encode_name for each in fields(kind) if each.default is not UNSET]
    own["required"] = ["kind", *always]
    return {"$schema": _DIALECT, "title": name, **generated}


def _policy() -> Schema:
    return {"$schema": _DIALECT, **Policy.model_json_schema(by_alias=True)}


def _dry_run() -> Schema:
    (answer,), components = schema_components([DryRun], ref_template="#/components/schemas/{name}")
    manifests = {"schema": {"description": "Pods, workloads and Lists of them."}}
    refusal = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Linkwise dry-run API",
            "version": "v1",
            "description": "The result of admission for a manifest, and where its pods fit now.",
        },
        "paths": {
            PATH: {
                "post": {
                    "operationId": "dryRun",
                    "summary": "Judge a manifest; nothing is created or reserved.",
                    "security": [{"token": []}],
                    "parameters": [
                        {
                            "name": "namespace",
                            "in": "query",
                            "description": "Of objects that name none.",
                            "schema": {"type": "string", "default": "default"},
                        }
                    ],
                    "requestBody": {
                        "required": True,
                        "content": {"application/yaml": manifests, "application/json": manifests},
                    },
                    "responses": {
                        "200": {
                            "description": "What becomes of each pod template.",
                            "content": {"application/json": {"schema": answer}},
                        },
                        **{
                            status: {"description": why, "content": refusal}
                            for status, why in _REFUSALS.items()
                        },
                    },
                }
            }
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kind_of(document: type[Document]) -> str:
    return str(document.__struct_config__.tag)


def _generator(kind: type[Document]) -> Callable[[], Schema]:
    return lambda: _document_schema(kind)


KINDS: dict[str, Callable[[], Schema]] = {
    **{_kind_of(kind): _generator(kind) for kind in _ANSWERS},
    "Policy": _policy,
    "DryRun": _dry_run,
}
"""By name: every document for scripts, the policy file, and the dry-run API as OpenAPI."""
