"""Reruns recorded runs under another LLM, prompt or policy, with their recorded results.

A rerun is a real run of the user's catalog: real workflow code and a real worker, on the throwaway Temporal server that
`holdfast.testing` uses, with in-memory stores and a separate task queue. So its verdicts are those of the real policy.
A rerun has no access to the outside world: an interceptor (`recorded_results`) answers every tool call from the
recording, and lets only the LLM and the activities that keep the rerun's log run. No resource is opened, no middleware
runs, no secret is read.

`files` verifies a portable file before it is rerun, like `holdfast verify`. Its content is untrusted, and selects
neither code, address, folder, catalog nor LLM. Recorded decisions of people are repeated for the same call; a request
without a recorded decision ends the rerun. The LLM is the configured one, a script, or `recorded`: the recorded
replies, with which every rerun must reproduce its recording.
"""
