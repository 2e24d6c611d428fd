"""What the LLM answers in tests, and in `holdfast worker --dev` as long as there is no key."""

from holdfast.testing import call, say, steps

script = steps(
    [
        call("open_invoices", customer="4711"),
        call("send_reminder", invoice="2026-17", text="May we remind you of invoice 2026-17?"),
        say("I have reminded customer 4711 of invoice 2026-17."),
    ]
)
