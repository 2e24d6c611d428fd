"""Verbs by which people decide, signed where they have a key."""

from pathlib import Path

from rich.text import Text

from holdfast.authority.signatures import public_key
from holdfast.authority.statements import AuthorityDelegation, Decision, Revocation
from holdfast.runtime.cli.exits import OK, REFUSED
from holdfast.runtime.cli.screens import signing_screen
from holdfast.runtime.cli.text import visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.client import decisions
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.encryption.signing_keys import check_shown, make_key, signed


class Deciding(Invocation):
    """Decides what runs ask."""

    async def decide(self, thread: str, payload: JSON, *, key: Path | None) -> int:
        """Decide a request: approve, deny, respond, or reconcile."""
        private, payload = self._private_key(key), self._named(payload)
        threads = await self._connect(thread)
        if private:
            payload = await self._seen(threads, thread, payload, private)
            payload = signed(payload, Decision, thread=thread, private=private)
        decided = await decisions.decide(threads, thread, payload)
        return self._outcome(f"request {payload['request']} of {thread}", decided)

    async def delegate_authority(self, thread: str, payload: JSON, *, key: Path | None) -> int:
        """Lend a right to decide to another approver."""
        private, payload = self._private_key(key), self._named(payload)
        threads = await self._connect(thread)
        if private:
            payload = signed(payload, AuthorityDelegation, thread=thread, private=private)
        decided = await decisions.delegate_authority(threads, thread, payload)
        return self._outcome(f"{payload['by']}'s right in {thread}, lent to {payload['to']}", decided)

    async def revoke(self, thread: str, payload: JSON, *, key: Path | None) -> int:
        """Take back a remembered rule, or a right that was lent."""
        private, payload = self._private_key(key), self._named(payload)
        threads = await self._connect(thread)
        if private:
            payload = signed(payload, Revocation, thread=thread, private=private)
        what = f"remembered rule {payload['remembered']}" if "remembered" in payload else payload["delegated_to"]
        return self._outcome(f"{what} in {thread}", await decisions.revoke(threads, thread, payload))

    async def keygen(self, path: Path) -> int:
        """Make a key, and print the public one."""
        public = make_key(path)
        self._output.result({"public": public, "file": str(path)}, Text(f'keys: ["{public}"]'))
        self._output.note(
            f"The private key is in {visible(str(path))}, for you alone. The line goes under your name in the policy; "
            "sign with --key or HOLDFAST_KEY."
        )
        return OK

    def _named(self, payload: JSON) -> JSON:
        """The payload with who sends it, and without what was not given."""
        given = {name: value for name, value in payload.items() if value is not None}
        return {**given, "by": self._name(payload["by"])}

    async def _seen(self, threads: Threads, thread: str, payload: JSON, private: str) -> JSON:
        """The payload with the digest of the request that is open, which is shown: what is shown is what is signed.

        A digest that is given was seen before, and needs no worker.
        """
        if "digest" in payload:
            return payload
        for request in await threads.pending(thread):
            if request["request"] == payload["request"]:
                check_shown(request)
                payload = {**payload, "digest": request["digest"]}
                self._output.note(signing_screen(request, payload, public_key(private)))
        return payload

    def _outcome(self, what: str, decided: decisions.UpdateResult) -> int:
        words = decided.explanation or decided.outcome
        told = {"outcome": decided.outcome, "explanation": decided.explanation}
        self._output.result(told, Text(visible(f"{what}: {words}")) if decided.counts else None)
        if not decided.counts:
            self._output.note(f"starter.py: {visible(what)}: {decided.outcome.replace('_', ' ')}: {visible(words)}")
        return OK if decided.counts else REFUSED
