"""Lists that are read page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct, field

T = TypeVar("T")
Params: TypeAlias = Mapping[str, str]


class ListMeta(Struct, frozen=True, rename="camel"):
    """The version of a list, and where its next page begins."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class Page(Struct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


async def pages(
    read: Callable[[Params], Awaitable[Page[T]]], params: Params
) -> AsyncIterator[Page[T]]:
    """Yield all pages of a list.

    Args:
        read: Reads the page that the parameters select.
        params: Of the first page.
    """
    while True:
        page = await read(params)
        yield page
        if not page.metadata.continue_:
            return
        params = {**params, "continue": page.metadata.continue_}
