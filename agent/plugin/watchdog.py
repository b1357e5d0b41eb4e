"""End this process when it does not answer the kubelet any more.

The kubelet waits for a device plugin without a time limit. Meanwhile it starts and ends no pod of
the node, and acts on no liveness probe. So a timer of the kernel ends the process.
"""

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Awaitable, Callable

import structlog

from agent.kubelet.call import KubeletError

LIMIT = 30.0
"""Time after the last check with success until the process is ended [s]."""
_INTERVAL = 10.0
"""Between two checks [s]."""

_log = structlog.get_logger()


class _SignalEvent(ctypes.Structure):
    """`struct sigevent` with `SIGEV_SIGNAL`."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")
    )


class KernelTimer:
    """A timer of the kernel that kills this process, also while it is stopped or a call hangs."""

    def __init__(self) -> None:
        """Create the timer; it does not run yet.

        Raises:
            OSError: The kernel refuses it.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._id = ctypes.c_void_p()
        event = _SignalEvent(signo=signal.SIGKILL)
        self._call(
            "timer_create", time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._id)
        )

    def set(self, seconds: float) -> None:
        """Kill the process after this time, unless it is set again before."""
        spec = _TimerSpec(value_s=int(seconds), value_ns=int(seconds % 1 * 1e9))
        self._call("timer_settime", self._id, 0, ctypes.byref(spec), None)

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._libc, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")


async def watch(
    answer: Callable[[], Awaitable[None]],
    set_timer: Callable[[float], None],
    interval: float = _INTERVAL,
) -> None:
    """Set the timer after each check with success, until cancelled.

    The timer is not stopped at the end, since the end may hang, too.

    Args:
        answer: Returns when the servers of this process have answered; raises KubeletError.
        set_timer: Sets the timer that ends the process.
        interval: Between two checks [s].
    """
    while True:
        try:
            await answer()
        except KubeletError as error:
            _log.warning("The agent does not answer the kubelet", err=str(error))
        else:
            set_timer(LIMIT)
        await asyncio.sleep(interval)
