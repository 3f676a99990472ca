"""What is left of a request when its client has gone away: nothing."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect

from satchel.serve.http import unless_gone


async def gone() -> dict[str, str]:
    return {"type": "http.disconnect"}


def test_work_that_loses_a_cancellation_ends_all_the_same() -> None:
    cancelled = 0

    async def work() -> None:
        """As ``wait_for`` does before Python 3.12 if it has just been given its result."""
        nonlocal cancelled
        while cancelled < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1
        raise asyncio.CancelledError

    async def scene() -> bool:
        working = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        with pytest.raises(ClientDisconnect):
            await asyncio.wait_for(unless_gone(gone, working), 20)
        return working.done()

    assert asyncio.run(scene())


def test_work_that_is_done_is_given_to_who_has_gone_since() -> None:
    async def scene() -> int:
        working: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        working.set_result(3)
        return await unless_gone(gone, working)

    assert asyncio.run(scene()) == 3
