"""The system calls that a confined command may make, as a filter for the kernel (seccomp BPF).

1. No file gets a set-user-id or set-group-id bit: the workspace is a folder of the host, and there such a file would
   run with the rights of the worker's user.
2. Calls that reach the kernel's keys, modules, mounts, clocks and asynchronous I/O are refused. Namespaces keep a
   command from using most of them anyway; the filter keeps it from reaching their code.
3. A call by another architecture's numbers (i386 and x32 on x86-64) ends the process: they need other tables than ours.

Source: `struct seccomp_data` and the instructions of seccomp(2); the list follows the defaults of container runtimes.
"""

import errno
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""BPF: load a word of `seccomp_data`; jump if equal, if at least, if a bit is set; return."""
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_SET_ID = 0o6000
_CREATES = 0o20000100
"""`O_CREAT` and the bit of `O_TMPFILE` that no other flag has: only with these does `open` read a mode."""
_X32 = 0x40000000

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine → its constant in `seccomp_data`, and its column in the tables below."""

_MODES = {
    "chmod": ((90, 1), None),
    "fchmod": ((91, 1), (52, 1)),
    "fchmodat": ((268, 2), (53, 2)),
    "fchmodat2": ((452, 2), (452, 2)),
    "creat": ((85, 1), None),
    "mknod": ((133, 1), None),
    "mknodat": ((259, 2), (33, 2)),
}
"""Call → its number, and the position of its mode, on each machine."""

_OPENS = {"open": ((2, 1, 2), None), "openat": ((257, 2, 3), (56, 2, 3))}
"""Call → its number, and the positions of its flags and of its mode."""

_ABSENT = {"openat2": (437, 437), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426)}
"""Calls whose arguments a filter cannot read; programs fall back to another call if the kernel lacks these."""

_REFUSED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_register": (427, 427),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


def is_supported(machine: str | None = None) -> bool:
    """Whether there is a filter for a machine; by default, for this one."""
    return (machine or platform.machine()) in _MACHINES


def filter_program(machine: str) -> bytes:
    """Return the filter as the kernel and `bwrap --seccomp` read it: an array of `struct sock_filter`.

    Raises:
        KeyError: There are no tables for this machine.
    """
    architecture, column = _MACHINES[machine]
    program = [*_load(_ARCHITECTURE), *_when(_EQUAL, architecture, [], otherwise=_returning(_KILL)), *_load(_NUMBER)]
    if machine == "x86_64":
        program += _when(_GREATER_OR_EQUAL, _X32, _returning(_KILL))
    for numbers in _REFUSED.values():
        program += _when(_EQUAL, numbers[column], _returning(_FAIL | errno.EPERM))
    for numbers in _ABSENT.values():
        program += _when(_EQUAL, numbers[column], _returning(_FAIL | errno.ENOSYS))
    for call in _MODES.values():
        if entry := call[column]:
            program += _when(_EQUAL, entry[0], [*_refuse_set_id(entry[1]), *_returning(_ALLOW)])
    for opening in _OPENS.values():
        if slots := opening[column]:
            number, flags, mode = slots
            checked = [*_argument(flags), *_when(_ANY_BIT, _CREATES, _refuse_set_id(mode)), *_returning(_ALLOW)]
            program += _when(_EQUAL, number, checked)
    return b"".join(struct.pack("=HBBI", *each) for each in [*program, *_returning(_ALLOW)])


@contextmanager
def seccomp_filter() -> Iterator[int]:
    """Yield a descriptor for `bwrap --seccomp`, which reads it once; closed at the end of the block."""
    descriptor = os.memfd_create("holdfast-seccomp")
    try:
        os.write(descriptor, filter_program(platform.machine()))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


_Instruction = tuple[int, int, int, int]
"""Code, how many instructions to skip if true and if false, and a constant."""


def _load(offset: int) -> list[_Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _argument(position: int) -> list[_Instruction]:
    return _load(_ARGUMENTS + 8 * position)  # the low half: both machines are little-endian


def _returning(value: int) -> list[_Instruction]:
    return [(_RETURN, 0, 0, value)]


def _when(
    test: int, constant: int, then: Sequence[_Instruction], *, otherwise: Sequence[_Instruction] = ()
) -> list[_Instruction]:
    """Instructions that run `then` if the test holds, or else `otherwise`; one of the two is empty."""
    if otherwise:
        return [(test, len(otherwise), 0, constant), *otherwise]
    return [(test, 0, len(then), constant), *then]


def _refuse_set_id(position: int) -> list[_Instruction]:
    return [*_argument(position), *_when(_ANY_BIT, _SET_ID, _returning(_FAIL | errno.EPERM))]
