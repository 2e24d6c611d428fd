"""Plays recorded runs again, under another LLM, prompt or policy, with their recorded results.

A play is a real run of the user's catalog: real workflow code and a real worker, on the throwaway Temporal server that
`holdfast.testing` uses, with stores in memory and a queue of its own. So its verdicts are those that the policy gives.
What a play does not have is the world: every activity passes an interceptor (`playback`), which answers tool calls from
the recording and lets nothing run but the LLM and what keeps the play's log. No resource is opened, no middleware runs,
no secret is read.

`files` verifies a portable file before it is played, as `holdfast verify` does; what it holds is somebody's words, and
selects neither code, address, folder, catalog nor LLM. Decisions of people in the recording are given again for the
same call; a request about which no person had decided ends the play. The LLM is the configured one, a script, or
`recorded`: the recorded replies again, under which every recorded run has to come out as it did.
"""
