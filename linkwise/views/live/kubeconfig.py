"""Loads the cluster and the user from a kubeconfig, by kubectl's rules."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from linkwise.manifest.value import InputError
from linkwise.views.files.source import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger


@dataclass(frozen=True, slots=True)
class Access:
    """The options of the command line that choose a cluster."""

    kubeconfig: str | None = None
    """Else $KUBECONFIG, else ~/.kube/config, else the pod that this runs in."""
    context: str | None = None
    """Else the kubeconfig's current context."""
    namespace: str | None = None
    """Else the context's."""


@dataclass(frozen=True, slots=True)
class UserContext:
    """A cluster, and the credentials of its user."""

    configuration: "Configuration"
    """Address, certificates, proxy."""
    headers: CIMultiDict[str]
    """Authorization and impersonation."""
    namespace: str
    """Namespace of objects that are named without one."""

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.configuration.host).rstrip("/")


async def load_user_context(access: Access) -> UserContext:
    """Read the kubeconfig, and run its credential plugin where it names one.

    Raises:
        InputError: There is no kubeconfig, it cannot be read, or the plugin fails.

    Cost: 0.3 s and 50 MB to import the library that supports all kinds of credentials.
    """
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config import ConfigException  # noqa: PLC0415

    # The library also raises what it logs to standard error.
    logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())
    configuration = Configuration()
    # Python 3.13 and later requires extensions that the CAs of some clusters lack.
    configuration.disable_strict_ssl_verification = True
    try:
        namespace, impersonation = await _load(access, configuration)
    except ConfigException as error:
        reason = " ".join(str(error).split())[:500]
        raise InputError(f"the kubeconfig gives no access: {reason}. Try kubectl.") from None
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001
        # The library checks neither the YAML nor the types of its parts.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"the kubeconfig cannot be used: {reason}. See kubectl config view."
        ) from None
    if not str(configuration.host).startswith(("https://", "http://")):
        raise InputError("the kubeconfig names no server. See kubectl config view.")
    headers = CIMultiDict(impersonation)
    token = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    if token:
        headers["Authorization"] = str(token).strip()
    return UserContext(configuration, headers, access.namespace or namespace or DEFAULT_NAMESPACE)


async def _load(
    access: Access, configuration: "Configuration"
) -> tuple[str, list[tuple[str, str]]]:
    """Fill the configuration; return the context's namespace, and the headers of impersonation."""
    from kubernetes_asyncio.config import load_incluster_config  # noqa: PLC0415
    from kubernetes_asyncio.config.kube_config import (  # noqa: PLC0415
        KubeConfigLoader,
        KubeConfigMerger,
    )

    paths = _paths(access)
    if not any(path.is_file() for path in paths):
        if access.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            return "", []
        raise InputError(
            f"there is no kubeconfig {paths[0]}. Name one with --kubeconfig, or set KUBECONFIG."
        )
    merged = KubeConfigMerger(os.pathsep.join(map(str, paths)))
    context, user = _select_context(merged, access)
    loader = KubeConfigLoader(
        merged.config,
        active_context=access.context,
        config_base_path=None,
        config_persister=merged.save_changes,
    )
    await loader.load_and_set(configuration)
    return str(context.get("namespace") or ""), _impersonation(user)


def _paths(access: Access) -> list[Path]:
    """Return the paths of kubeconfigs, the most important first."""
    named = access.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    listed = [named] if access.kubeconfig else named.split(os.pathsep)
    return [Path(path).expanduser() for path in listed if path] or [Path(named)]


def _select_context(
    merged: "KubeConfigMerger", access: Access
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the selected context, and its user; an empty user where there is none."""
    # The library wraps each part with the file that it came from.
    tree: dict[str, Any] = merged.config.value if merged.config else {}
    contexts = {item["name"]: item.value.get("context") for item in tree.get("contexts") or ()}
    name = access.context or tree.get("current-context")
    if not name:
        raise InputError(f"the kubeconfig chooses no context. {_advice(contexts)}")
    if name not in contexts:
        raise InputError(f"there is no context {name} in the kubeconfig. {_advice(contexts)}")
    context = dict(contexts[name] or {})
    users = {item["name"]: item.value.get("user") for item in tree.get("users") or ()}
    user = users.get(context.get("user"))
    if user is None:
        # The library fails on a context without a user, or with an unknown one.
        others = [item for item in tree["contexts"] if item["name"] != name]
        tree["contexts"] = [*others, {"name": name, "context": {**context, "user": "nobody"}}]
        tree["users"] = [{"name": "nobody", "user": {}}]
    return context, user or {}


def _advice(contexts: Mapping[str, object]) -> str:
    if not contexts:
        return "Name another kubeconfig with --kubeconfig."
    return f"Name one with --context: {', '.join(sorted(contexts)[:10])}."


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of a user who impersonates another."""
    if not user.get("as"):
        return []
    headers = [("Impersonate-User", str(user["as"]))]
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    return headers
