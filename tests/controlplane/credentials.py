"""Credentials for the control plane: key of the tokens, fixed users, kubeconfigs."""

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

ADMIN, CONTROLLERS, SCHEDULER, NODES = "admin", "controllers", "scheduler", "nodes"
SIGNING_KEY, USERS = "service-account.key", "users.csv"
KUBELET_CLIENT, KUBELET_CLIENT_KEY = "kubelet-client.crt", "kubelet-client.key"
"""Of the API server as a client of kubelets and webhooks; they trust this certificate alone."""
ADMISSION = "admission.json"
"""Configuration of the API server: it shows that certificate to webhooks."""
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
    _write_key(folder / SIGNING_KEY)
    _write_client(folder)
    _write_configuration(folder)
    tokens = {name: secrets.token_urlsafe(16) for name in _USERS}
    rows = (f'{tokens[name]},{user},{name},"{group}"' for name, (user, group) in _USERS.items())
    (folder / USERS).write_text("\n".join(rows) + "\n")
    return tokens


def _write_key(file: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    file.write_bytes(pem)
    return key


def _write_client(folder: Path) -> None:
    """Write the certificate by which kubelets recognise the API server; it signs itself."""
    key = _write_key(folder / KUBELET_CLIENT_KEY)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(usage, critical=False)
        .sign(key, SHA256())
    )
    (folder / KUBELET_CLIENT).write_bytes(certificate.public_bytes(Encoding.PEM))


def _write_configuration(folder: Path) -> None:
    """Write what has the API server show its certificate to webhooks."""
    user = {
        "client-certificate": str(folder / KUBELET_CLIENT),
        "client-key": str(folder / KUBELET_CLIENT_KEY),
    }
    users = [{"name": "*", "user": user}]
    config = folder / "webhooks.kubeconfig"
    config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    version = "apiserver.config.k8s.io/v1"
    hooks = {
        "apiVersion": version,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(config),
    }
    plugins = [
        {"name": name, "configuration": hooks}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    admission = {"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins}
    (folder / ADMISSION).write_text(json.dumps(admission))


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
