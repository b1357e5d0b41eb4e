"""`python -m bench.gangs.limiter PORT SERVER CA RATE`: an API server with a write limit.

It stands between one client and the real one, and lets writes through in the order in which they
come, as a client's own rate limiter would; reads and watches pass at once.
"""

import asyncio
import ssl
import sys

import aiohttp
from aiohttp import web

_PASSED_ON = {"Authorization", "Content-Type", "Accept"}


class Limiter:
    """Passes requests on."""

    def __init__(self, session: aiohttp.ClientSession, server: str, rate: float) -> None:
        self._session, self._server, self._pause = session, server, 1 / rate
        self._next = 0.0

    async def _turn(self) -> None:
        """Wait until one more write may pass."""
        now = asyncio.get_running_loop().time()
        at = self._next = max(now, self._next + self._pause)
        await asyncio.sleep(at - now)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Forward a request to the API server, and stream its response back."""
        body = await request.read()
        if request.method != "GET":
            await self._turn()
        headers = {key: value for key, value in request.headers.items() if key in _PASSED_ON}
        url = f"{self._server}{request.path_qs}"
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response


async def main(port: int, server: str, ca: str, rate: float) -> None:
    """Serve until terminated."""
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca), limit=0)
    unlimited = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=trust, timeout=unlimited) as session:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Limiter(session, server, rate).pass_on)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
