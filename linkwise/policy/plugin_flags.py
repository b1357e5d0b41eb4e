"""Find keys of the file of NVIDIA's device plugin that it does not know, outside of `sharing`.

Linkwise reads none of them, so that an unknown key changes nothing here; NVIDIA's plugin passes it
over without a word.

Source: NVIDIA/k8s-device-plugin, `api/config/v1/{flags,resources,imex}.go`, at 01421a2 and v0.18.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from linkwise.manifest.place import Path
from linkwise.policy.sharing import PluginConfig, Strategy

_KNOWN: Mapping[tuple[str, ...], frozenset[str]] = {
    ("flags",): frozenset(
        {
            *("migStrategy", "failOnInitError", "restartOnDeviceUnhealthy", "mpsRoot"),
            *("nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled"),
            *("useNodeFeatureAPI", "deviceDiscoveryStrategy", "plugin", "gfd"),
        }
    ),
    ("flags", "plugin"): frozenset(
        {
            *("passDeviceSpecs", "deviceListStrategy", "deviceIDStrategy", "cdiAnnotationPrefix"),
            *("nvidiaCTKPath", "nvidiaCDIHookPath", "containerDriverRoot", "cdiFeatureFlags"),
        }
    ),
    ("flags", "gfd"): frozenset(
        {"oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"}
    ),
    ("resources",): frozenset({"gpus", "migs"}),
    ("imex",): frozenset({"channelIDs", "required"}),
}
"""The known keys of each section."""
_OF_SHARING = frozenset(field.alias for field in Strategy.model_fields.values())
_KEYS_MAX = 256
"""Keys of a section that are looked at."""


def unknown_keys(config: PluginConfig) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, a message and a fix for each unknown key."""
    sections = {"flags": config.flags, "resources": config.resources, "imex": config.imex}
    for path, known in _KNOWN.items():
        value: object = sections[path[0]]
        for key in path[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        for key in list(value)[:_KEYS_MAX] if isinstance(value, dict) else ():
            if key not in known:
                yield (*path, key), f"unknown key {str(key)!r}", _fix(path, str(key))


def _fix(path: tuple[str, ...], key: str) -> str:
    if key in _OF_SHARING:
        return "write it under sharing.timeSlicing or sharing.mps"
    elsewhere = next((other for other, known in _KNOWN.items() if key in known), None)
    if elsewhere:
        return f"write it under {'.'.join(elsewhere)}"
    known = sorted(_KNOWN[path])
    close = get_close_matches(key[:64], known, 1, 0.6)
    return f"write {close[0]}" if close else f"known keys here: {', '.join(known)}"
