"""Names of the other vendors whose tools print matrices like `nvidia-smi topo -m`."""

import re
from collections.abc import Iterable

from linkwise.topology.cells import is_cell, is_label

_TOOLS = {
    "AMD": r"rocm-smi|amd-smi|\bXGMI\b",
    "Hygon": r"\bhy-smi\b|\b[DH]CU[0-9]",
    "MetaX": r"\bmx-smi\b|MetaX",
    "Moore Threads": r"\bmthreads-gmi\b|\bMTLink\b|\bMTHREADS\b|\bMTT S[0-9]",
    "Huawei": r"\bnpu-smi\b|\bNPU[0-9]|\bHCCS\b",
    "Intel": r"\bhl-smi\b|\bXe[ -]?Link\b|\bXL[0-9]{1,2}\b",
    "Cambricon": r"\bcnmon\b|\bMLU[0-9]|MLU-?Link",
    "Iluvatar": r"\bixsmi\b|Iluvatar",
    "Biren": r"\bbrsmi\b|\bBLink\b|Biren",
    "Kunlunxin": r"\bXPU[0-9]|Kunlun",
    "Enflame": r"\befsmi\b|\bGCU[0-9]|Enflame",
    "T-Head": r"\bppu-smi\b|\bPPU[0-9]",
}
_PATTERNS = {vendor: re.compile(pattern) for vendor, pattern in _TOOLS.items()}
"""Their tools, links and device names, as they print them."""
_LINKS = {
    "MX": "MetaX, for MetaXLink",
    "MT": "Moore Threads, for MTLink",
    "XGMI": "AMD, for its XGMI links",
    "HCCS": "Huawei, for HCCS links",
    "XL": "Intel, for Xe Link",
    "ICN": "T-Head, for ICN links",
    "BL": "Biren, for BLink",
    "IX": "Iluvatar, for its links",
    "MLU": "Cambricon, for MLU-Link",
}
"""Words for links between two GPUs, without the number of links."""
_WORD = re.compile(r"([A-Z][A-Z_]{0,7})[0-9]{0,2}")
_KNOWN = ("X", "NV", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "PSB", "CNS", "GNS", "TNS", "OK")
"""Of these, a beginning is a word that was cut."""
_NVIDIA = re.compile(r"nvidia-smi|\bNV[0-9]{1,2}\b|NVIDIA")


def other_vendor(text: str) -> str | None:
    """Return the vendor whose tools a text names, where it names nothing of NVIDIA; or None."""
    if _NVIDIA.search(text):
        return None
    return next((vendor for vendor, pattern in _PATTERNS.items() if pattern.search(text)), None)


def unknown_word(lines: Iterable[tuple[int, str]]) -> str | None:
    """Return what is wrong with the first word between two GPUs that is not known; None: nothing.

    Args:
        lines: The cleaned lines of a text, with their numbers.
    """
    for number, line in lines:
        words = line.replace("|", " ").split()
        if not words or not is_label(words[0]) or "X" not in words:
            continue
        for word in words[1:]:
            match = _WORD.fullmatch(word)
            if match is None:
                break
            if is_cell(word) or any(known.startswith(word) for known in _KNOWN):
                continue
            whose = _LINKS.get(match[1])
            owner = f"a word of {whose}" if whose else "none of nvidia-smi"
            return f"line {number} has {word} between two GPUs, {owner}; only NVIDIA GPUs are read"
    return None
