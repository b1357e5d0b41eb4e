"""Call the gRPC services of the kubelet."""

from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

_TIMEOUT = 10.0
"""For connecting and the answer together [s]."""
_OPTIONS = (
    # 250 pods with 16 GPUs of 288 GiB make 0.1 MB; the limit bounds the memory of this process.
    ("grpc.max_receive_message_length", 16 << 20),
    # Otherwise a channel waits for as long as the last one to the same socket backs off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.default_authority", "localhost"),
)
_Response = TypeVar("_Response", bound=Message)


class KubeletError(Exception):
    """The kubelet gives no answer; the message names the socket and the reason."""


async def call(socket: Path, method: str, request: Message, response: type[_Response]) -> _Response:
    """Call a method once, over a connection of its own (1 ms), so that restarts need no care.

    Args:
        socket: Unix socket of the service.
        method: Such as `/v1.PodResourcesLister/List`.
        request: The message to send.
        response: Type of the answer.

    Raises:
        KubeletError: There is no answer within 10 s, or it is an error.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        invoke = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            answer: _Response = await invoke(request, timeout=_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
            raise KubeletError(f"kubelet at {socket}, {method}: {reason}") from error
    return answer
