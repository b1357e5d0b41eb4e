"""Credentials for the control plane: key of the tokens, fixed users, kubeconfigs."""

import json
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

ADMIN, CONTROLLERS, SCHEDULER, NODES = "admin", "controllers", "scheduler", "nodes"
SIGNING_KEY, USERS = "service-account.key", "users.csv"
_USERS = {
    ADMIN: ("admin", "system:masters"),
    CONTROLLERS: ("system:kube-controller-manager", ""),
    SCHEDULER: ("system:kube-scheduler", ""),
    # kwok acts for every kubelet.
    NODES: ("kwok", "system:masters"),
}


def write_credentials(folder: Path) -> dict[str, str]:
    """Write what the API server is started with; return the token of each fixed user.

    That is the key that signs the tokens of ServiceAccounts, and the users it knows by tokens.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (folder / SIGNING_KEY).write_bytes(pem)
    tokens = {name: secrets.token_urlsafe(16) for name in _USERS}
    rows = (f'{tokens[name]},{user},{name},"{group}"' for name, (user, group) in _USERS.items())
    (folder / USERS).write_text("\n".join(rows) + "\n")
    return tokens


def kubeconfig(server: str, ca_file: Path, token: str) -> str:
    """Return a kubeconfig of one cluster and one user; it is JSON, which is YAML too."""
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "linkwise",
            "clusters": [{"name": "linkwise", "cluster": cluster}],
            "users": [{"name": "linkwise", "user": {"token": token}}],
            "contexts": [
                {"name": "linkwise", "context": {"cluster": "linkwise", "user": "linkwise"}}
            ],
        },
        indent=2,
    )
