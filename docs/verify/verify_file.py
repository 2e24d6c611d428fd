"""Verify a portable file of Holdfast: `python verify_file.py FILE [KEY]`; it takes Python and the package cryptography.

Checks that the file is laid out as the format says and has exactly the members of its manifest, that the statement is
about them, its signatures, every member's digest, and the chain of the log. With KEY, the public key of the person who
exported it, that they signed it; without, anybody may have made it. What the events mean is not checked.
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

ORDER = ["memory/log.jsonl", "memory/redacted.jsonl", "memory/ledger.jsonl", "memory/artifacts/"]
ORDER += [f"context/{name}" for name in ("context.json", "agents.jsonl", "policies.jsonl", "keys.json")]
ORDER += ["intent/intent.json", "manifest.json", "statement.dsse.json"]
BODILESS = {"at", "by", "digest", "position", "redacted", "schema_version", "type"}


class Unsound(Exception):
    """The first thing that does not hold: where, and what."""


def need(holds, where, why="it was altered"):
    """Raise unless something holds."""
    if not holds:
        raise Unsound(f"{where}: {why}")


def rank(name):
    """Return where a member belongs; -1 for a name that none has."""
    place = "memory/artifacts/" if re.fullmatch("memory/artifacts/[0-9a-f]{64}", name, re.ASCII) else name
    return ORDER.index(place) if place in ORDER and name != "memory/artifacts/" else -1


def layout(file):
    """Return the members, name to (offset of the content, size, CRC-32): every other byte is as the format has it."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 22))
    end = file.read(22)
    need(size <= 4_000_000_000 and len(end) == 22 and end[:4] == b"PK\5\6", "zip", "it has no directory at its end")
    count, length, begin = struct.unpack("<10xHII2x", end)
    need(
        count <= 60_000 and length <= 60_000 * 146 and begin + length + 22 == size, "zip", "its directory is elsewhere"
    )
    file.seek(begin)
    data, at, offset, central, local, found, last = file.read(length), 0, 0, [], [], {}, (-1, "")
    while at < length:
        need(data[at : at + 4] == b"PK\1\2" and at + 46 <= length, "zip", "its directory is unreadable")
        crc, bytes_, named = struct.unpack("<16xII4xH16x", data[at : at + 46])
        name = data[at + 46 : at + 46 + named].decode("latin-1")
        need(last < (rank(name), name) and rank(name) >= 0, "zip", f"{name[:200]!a} is unknown, or out of order")
        last, fields = (rank(name), name), (20, 0, 0, 0, 33, crc, bytes_, bytes_, named, 0)
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
    need(all(each in ("artifacts", "ledger") for each in read["left_out"]), "manifest.json")
    counts = [read["events"], *(each["size"] for each in read["members"])]
    need(all(type(each) is float and each >= 0 and each.is_integer() for each in counts), "manifest.json")
    need(all(len(each) == 3 and hex_.fullmatch(each["sha256"]) for each in read["members"]), "manifest.json")
    return read


def statement(data, about, whole, key):
    """Check that the envelope is that of the statement about the manifest, and all its signatures."""
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
        public = base64.urlsafe_b64decode(each["keyid"].removeprefix("ed25519:") + "=")
        signature = base64.b64decode(each["sig"], validate=True)
        need(each["keyid"] == "ed25519:" + base64.urlsafe_b64encode(public).decode()[:43], "statement.dsse.json")
        need(each["sig"] == base64.b64encode(signature).decode(), "statement.dsse.json")
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    need(not key or key in names, "statement.dsse.json", "it is not signed with the key")
    return names


def log(name, data, about):
    """Check the chain of the log, event by event; of events without their bodies, only their form."""
    digest, lines, place = "0" * 64, data.split(b"\n"), -1
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
    need(not lines[-1], name, "its last line has no end")
    return place + 1, digest


def verify(path, key=""):
    """Return the keys that signed, the number of events and the head; raise at the first thing that does not hold."""
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
            logs = [name for name in names if name in ORDER[:2]]
            need(logs == [ORDER[about["redacted"]]], where, "it has no log, or two")
            where = "statement.dsse.json"
            envelope, sound = content(where)
            need(sound, where)
            signers = statement(envelope, about, whole, key)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidSignature):
            raise Unsound(f"{where}: it was altered") from None
        for each in about["members"]:
            name, (data, sound) = each["name"], content(each["name"])
            found = log(name, data, about) if name in logs else None
            digest = hashlib.sha256(data).hexdigest()
            need(sound and digest == each["sha256"], name)
            need(not name.startswith("memory/artifacts/") or name.endswith(digest), name, "its name is not its digest")
            need(
                found in (None, (about["events"], about["head"])), f"{name}: event {found and found[0]}", "it ends here"
            )
    return signers, int(about["events"]), about["head"]


if __name__ == "__main__":
    try:
        signers, events, head = verify(*sys.argv[1:3])
        print(f"head {head}, {events} events, signed with {', '.join(signers) or 'no key'}")
        print("not checked: what the events mean" + ("" if sys.argv[2:] else ", and who made the file"))
    except (Unsound, OSError) as error:
        print(ascii(str(error)))
        sys.exit(1)
