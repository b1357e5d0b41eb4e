#!/usr/bin/env python3
"""Run Chromium without netlink sockets, so that it does not see changes of the machine's network.

When a network device appears, and other tests add some, Chromium fails its requests with
ERR_NETWORK_CHANGED, even those to 127.0.0.1; it has no option against it. Without a netlink socket
it assumes that the network stays as it is.
"""

import ctypes
import errno
import os
import platform
import shutil
import struct
import sys

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_NUMBERS = {"x86_64": 41, "aarch64": 198}
"""Of the system call `socket`."""
_AF_NETLINK = 16
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
"""Offsets in `struct seccomp_data`."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2


def deny_netlink(number: int) -> None:
    """Make `socket(AF_NETLINK, ...)` fail in this process and in those that it starts."""
    code = (
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, _AF_NETLINK),
        (_RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("no chromium")
    if sys.platform == "linux" and platform.machine() in _NUMBERS:
        deny_netlink(_NUMBERS[platform.machine()])
    os.execv(CHROMIUM, [CHROMIUM, *sys.argv[1:]])  # noqa: S606
