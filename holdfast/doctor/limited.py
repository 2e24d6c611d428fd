"""Makes checks that can hang or fail: neither holds up the others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from holdfast.doctor.check import Check
from holdfast.errors import HoldfastError

SECONDS = 20.0
"""How long one check may take: the longest waits for servers within one have limits of their own below it."""

CheckResult = Check | Sequence[Check] | None
"""What one check returns; None if it has nothing to say."""


class Limited:
    """Makes checks for a limited time. One that hangs keeps its thread, so it is not begun again before it has ended.

    Args:
        seconds: How long each may take.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._threads: dict[str, threading.Thread] = {}

    async def in_thread(self, name: str, check: Callable[[], CheckResult]) -> list[Check]:
        """Make a check that blocks, and return what it finds.

        Args:
            name: Its name, if it hangs or fails.
            check: Makes it.
        """
        if (known := self._threads.get(name)) and known.is_alive():
            return [Check(name, "missing", "the last check of it hangs, and is not made again", "restart this process")]
        return await self.awaited(name, self._run(name, check))

    async def awaited(self, name: str, check: Awaitable[CheckResult]) -> list[Check]:
        """Wait for a check, and return what it finds. The arguments are as for `in_thread`."""
        try:
            async with asyncio.timeout(self._seconds):
                found = await check
        except TimeoutError:
            detail = f"the check did not end within {self._seconds:g} s"
            return [Check(name, "missing", detail, "see whether what it looks at answers, such as a disk or a server")]
        except HoldfastError as error:
            return [Check(name, "missing", str(error))]
        except Exception as error:  # its text could hold a secret
            return [Check(name, "missing", f"the check failed: {type(error).__name__}", "report it, with its name")]
        return [found] if isinstance(found, Check) else list(found or ())

    def _run(self, name: str, check: Callable[[], CheckResult]) -> "asyncio.Future[CheckResult]":
        """Begin a check in a thread of its own, which does not keep the process from ending."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[CheckResult] = loop.create_future()

        def settle(found: CheckResult, error: Exception | None) -> None:
            if not done.done():  # the time was up
                done.set_exception(error) if error else done.set_result(found)

        def run() -> None:
            found: CheckResult = None
            failed: Exception | None = None
            try:
                found = check()
            except Exception as error:
                failed = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, found, failed)

        thread = self._threads[name] = threading.Thread(target=run, name=f"check {name}", daemon=True)
        thread.start()
        return done
