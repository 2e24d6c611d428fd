"""Verify a portable file of Holdfast: `python verify_file.py FILE [KEY [NODE…]]`; it takes the package cryptography.

Checks that the file is laid out as the format says and has exactly the members of its manifest, that the statement is
about them, its signatures, every member's digest, the chain of the log and of each sub-agent's, and that the nodes'
seals fit it. With KEY, the public key of the person who exported it, that they signed it; without KEY, anybody may have
made it. With NODEs, the public keys of machines, prints how many events their seals cover. The meaning of the events is
not checked.
"""

import base64
import hashlib
import json
import re
import struct
import sys
import zlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from verify import canonical  # docs/verify/verify.py, beside this file

KINDS = ["log.jsonl", "redacted.jsonl", "ledger.jsonl"]
ORDER = [*(f"memory/{kind}" for kind in KINDS), "memory/seals.jsonl", "memory/children/", "memory/artifacts/"]
ORDER += [f"context/{name}" for name in ("context.json", "agents.jsonl", "policies.jsonl", "keys.json", "nodes.json")]
ORDER += ["intent/intent.json", "manifest.json", "statement.dsse.json"]
SEAL = {"at", "events", "head", "holdfast", "namespace", "node", "signature", "thread"}
BODILESS = {"at", "by", "digest", "position", "redacted", "schema_version", "type"}


class Unsound(Exception):
    """The first check that failed: its location and reason."""


def need(holds, where, why="it was altered"):
    """Raise unless a check holds."""
    if not holds:
        raise Unsound(f"{where}: {why}")


def rank(name):
    """Return the sort key of a member's place in the file; None for an unknown name."""
    child = re.fullmatch(r"memory/children/((?:[1-9]\d{0,8}\.){0,19}[1-9]\d{0,8})/([a-z.]+)", name, re.ASCII)
    if child and child[2] in KINDS:
        return ORDER.index("memory/children/"), [int(number) for number in child[1].split(".")], KINDS.index(child[2])
    place = "memory/artifacts/" if re.fullmatch("memory/artifacts/[0-9a-f]{64}", name, re.ASCII) else name
    return (ORDER.index(place), [], name) if place in ORDER and not name.endswith("/") else None


def layout(file):
    """Return the members, name to (offset of the content, size, CRC-32), and check every other byte of the format."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 22))
    end = file.read(22)
    need(size <= 4_000_000_000 and len(end) == 22 and end[:4] == b"PK\5\6", "zip", "it has no directory at its end")
    count, length, begin = struct.unpack("<10xHII2x", end)
    need(
        count <= 60_000 and length <= 60_000 * 286 and begin + length + 22 == size, "zip", "its directory is elsewhere"
    )
    file.seek(begin)
    data, at, offset, central, local, found, last = file.read(length), 0, 0, [], [], {}, (-1,)
    while at < length:
        need(data[at : at + 4] == b"PK\1\2" and at + 46 <= length, "zip", "its directory is unreadable")
        crc, bytes_, named = struct.unpack("<16xII4xH16x", data[at : at + 46])
        name = data[at + 46 : at + 46 + named].decode("latin-1")
        need(rank(name) and last < rank(name), "zip", f"{name[:200]!a} is unknown, or out of order")
        last, fields = rank(name), (20, 0, 0, 0, 33, crc, bytes_, bytes_, named, 0)
        header = b"PK\3\4" + struct.pack("<5H3I2H", *fields) + name.encode()
        local.append((name, offset, header))
        entry = struct.pack("<6H3I5H2I", 788, *fields, 0, 0, 0, 0o100600 << 16, offset)
        central.append(b"PK\1\2" + entry + name.encode())
        found[name] = offset + len(header), bytes_, crc
        offset, at = offset + len(header) + bytes_, at + 46 + named
        need(offset <= 4_000_000_000, "zip", "its directory names members beyond the largest file")
    ending = b"PK\5\6" + struct.pack("<4H2IH", 0, 0, len(local), len(local), length, offset, 0)
    need(b"".join(central) + ending == data + end, "zip", "its directory differs from its members")
    for name, offset, header in local:
        file.seek(offset)
        need(file.read(len(header)) == header, "zip", f"the header of {name} differs from the directory")
    need("manifest.json" in found and "statement.dsse.json" in found, "zip", "it has no manifest or no statement")
    return found


def manifest(data):
    """Return the manifest, which is canonical JSON with exactly its fields."""
    read, hex_ = json.loads(data.decode(), parse_int=float), re.compile("[0-9a-f]{64}", re.ASCII)
    need(canonical(read).encode() == data and read["format"] == "holdfast-portable/1", "manifest.json")
    need(len(read) == 7 and type(read["thread"]) is str and len(read["thread"]) <= 1_000, "manifest.json")
    need(hex_.fullmatch(read["head"]) and type(read["redacted"]) is bool, "manifest.json")
    need(all(each in ("artifacts", "ledger", "subagents") for each in read["left_out"]), "manifest.json")
    counts = [read["events"], *(each["size"] for each in read["members"])]
    need(all(type(each) is float and each >= 0 and each.is_integer() for each in counts), "manifest.json")
    need(all(len(each) == 3 and hex_.fullmatch(each["sha256"]) for each in read["members"]), "manifest.json")
    return read


def raw(text, prefix=""):
    """Return the bytes of URL-safe base64 without padding, in its one spelling, after a prefix."""
    data = base64.urlsafe_b64decode(text.removeprefix(prefix) + "==")
    if prefix + base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise ValueError
    return data


def statement(data, about, whole, key):
    """Check the envelope of the statement about the manifest, and all its signatures."""
    subjects = [(about["thread"], about["head"]), ("manifest.json", hashlib.sha256(whole).hexdigest())]
    payload = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects],
        "predicateType": "urn:holdfast:portable-file:1",
        "predicate": {name: about[name] for name in ("format", "events", "redacted")},
    }
    made, kind = canonical(payload).encode(), b"application/vnd.in-toto+json"
    signed = json.loads(data)["signatures"]
    envelope = {"payload": base64.b64encode(made).decode(), "payloadType": kind.decode(), "signatures": signed}
    need(canonical(envelope).encode() == data and len(signed) <= 16, "statement.dsse.json")
    names, message = [each["keyid"] for each in signed], b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(made), made)
    for each in signed:
        need(each.keys() == {"keyid", "sig"} and names.count(each["keyid"]) == 1, "statement.dsse.json")
        public = raw(each["keyid"], "ed25519:")
        signature = base64.b64decode(each["sig"], validate=True)
        need(each["sig"] == base64.b64encode(signature).decode(), "statement.dsse.json")
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    need(not key or key in names, "statement.dsse.json", "it is not signed with the key")
    return names


def log(name, data, about):
    """Check the chain of a log, event by event; for events without their bodies, check the form only."""
    digest, lines, place, heads = "0" * 64, data.split(b"\n"), -1, []
    for place, line in enumerate(lines if lines[-1] else lines[:-1]):
        where = f"{name}: event {place}"
        try:
            event = json.loads(line.decode(), parse_int=float)
            need(isinstance(event, dict) and canonical(event).encode() == line, where, "it is not canonical JSON")
        except (ValueError, TypeError, RecursionError):
            raise Unsound(f"{where}: it is not canonical JSON") from None
        if about["redacted"] and event.get("redacted") is True:
            need(event.keys() <= BODILESS and event.keys() >= {"digest", "position", "type"}, where)
            digest = event["digest"]
        else:
            body = {key: value for key, value in event.items() if key != "digest"}
            digest = hashlib.sha256((digest + canonical(body)).encode()).hexdigest()
        place_, claimed = event.get("position"), event.get("digest")
        need((type(place_), place_, claimed) == (float, place, digest) and type(claimed) is str, where)
        heads.append(digest)
        if name.startswith("memory/children/") and place == 0 and event.get("redacted") is not True:
            thread = re.sub(r"(?s)(?<=.)~reset-[1-9][0-9]*\Z", "", about["thread"]) + "." + name.split("/")[2]
            need(event.get("thread") == thread, where, "it is the log of another thread")
    need(not lines[-1], name, "its last line has no end")
    need(place >= 0 or not name.startswith("memory/children/"), f"{name}: event 0", "it has no events")
    return place + 1, digest, heads


def seals(data, thread, heads):
    """Return the number of events that each node's seals cover, by its key, and the first node to seal each event."""
    lines, covered, found, first = data.split(b"\n"), {}, [], []
    need(lines.pop() == b"" and lines and lines == sorted(set(lines)), "memory/seals.jsonl")
    for line in lines:
        seal = json.loads(line.decode(), parse_int=float)
        body, events, node = {k: seal[k] for k in seal if k != "signature"}, seal["events"], seal["node"]
        need(seal.keys() == SEAL and canonical(seal).encode() == line, "memory/seals.jsonl")
        need((seal["holdfast"], seal["thread"]) == ("node-seal/1", thread), "memory/seals.jsonl")
        need(type(events) is float and events.is_integer() and 1 <= events <= len(heads), "memory/seals.jsonl")
        need(seal["head"] == heads[int(events) - 1], "memory/seals.jsonl")
        public = Ed25519PublicKey.from_public_bytes(raw(node, "ed25519:"))
        public.verify(raw(seal["signature"]), canonical(body).encode())
        covered[node] = max(int(events), covered.get(node, 0))
        found.append((int(events), line, node))
    for events, _, node in sorted(found):
        begin, same = (first[-1]["last"] + 1, first[-1]["node"] == node) if first else (0, False)
        if events > begin:
            first.append({"first": first.pop()["first"] if same else begin, "last": events - 1, "node": node})
    return covered, first


def verify(path, key=""):
    """Return the signing keys, the number of events, the head, and the coverage of seals; raise if a check fails."""
    with open(path, "rb") as file:  # noqa: PTH123  # a page with few imports
        members, where = layout(file), "manifest.json"

        def content(name):
            offset, size, crc = members[name]
            file.seek(offset)
            data = file.read(size)
            return data, zlib.crc32(data) == crc and len(data) == size

        try:
            whole, sound = content(where)
            need(sound, where)
            about, names = manifest(whole), list(members)[:-2]
            need(
                [(each["name"], each["size"]) for each in about["members"]] == [(n, members[n][1]) for n in names],
                where,
            )
            folders = {n[:-1] for n in ["memory/"] + [re.match("memory/children/[^/]+/|", n)[0] for n in names] if n}
            logs = [name for name in names if name.endswith((KINDS[0], KINDS[1]))]
            need(
                set(logs) == {f"{each}/{KINDS[about['redacted']]}" for each in folders}, where, "it has no log, or two"
            )
            above = {re.sub(r"/children/\d+$|\.\d+$", "", each) for each in folders}
            need(above <= folders, where, "it has a sub-agent, and not the one above it")
            where = "statement.dsse.json"
            envelope, sound = content(where)
            need(sound, where)
            signers = statement(envelope, about, whole, key)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidSignature):
            raise Unsound(f"{where}: it was altered") from None
        heads, nodes, first = [], {}, []
        for each in about["members"]:
            name, (data, sound) = each["name"], content(each["name"])
            found = log(name, data, about) if name in logs else ()
            heads = found[2] if found else heads
            try:
                if name == "memory/seals.jsonl":
                    nodes, first = seals(data, about["thread"], heads)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidSignature):
                raise Unsound(f"{name}: it was altered") from None
            whose = {"nodes": sorted(nodes), "stretches": first}
            need(name != "context/nodes.json" or data == canonical(whose).encode(), name)
            digest = hashlib.sha256(data).hexdigest()
            need(sound and digest == each["sha256"], name)
            need(not name.startswith("memory/artifacts/") or name.endswith(digest), name, "its name is not its digest")
            if found and not name.startswith("memory/children/"):
                need(found[:2] == (about["events"], about["head"]), f"{name}: event {found[0]}", "it ends here")
        need(not nodes or "context/nodes.json" in names, "context/nodes.json", "it is missing")
    return signers, int(about["events"]), about["head"], nodes


if __name__ == "__main__":
    try:
        signers, events, head, nodes = verify(*sys.argv[1:3])
        print(f"head {head}, {events} events, signed with {', '.join(signers) or 'no key'}")
        for node in sorted(nodes):
            claimed = "" if node in sys.argv[3:] else "claimed, not checked, for it is none of the given ones: "
            print(f"{claimed}node {node} sealed the first {nodes[node]} events")
        print("not checked: what the events mean" + ("" if sys.argv[2:] else ", and who made the file"))
    except (Unsound, OSError) as error:
        print(ascii(str(error)))
        sys.exit(1)
