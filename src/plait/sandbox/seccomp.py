"""The system calls that a command in a sandbox is refused, as a filter for the kernel.

Namespaces and dropped capabilities already stop most of this. The filter is the second lock on the
doors that went wrong most often: mounts, keys, io_uring, user namespaces made by the command
itself, and typing into the user's terminal. A refused call fails with an error that programs know
how to handle; only calls of a foreign architecture kill the process.

Without namespaces it is the only lock on some doors: unix sockets by path, and memory and queues
that are found by a key.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

# BPF: a word, jump if ==, if &, if >=, return, and with a constant
_LOAD, _EQUAL, _MASK, _AT_LEAST, _RETURN, _AND = 0x20, 0x15, 0x45, 0x35, 0x06, 0x54
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16  # offsets in seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NEW_USER = 0x10000000
_X32 = 0x40000000
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: both put words into a terminal's mouth

_REFUSED = (
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick"
    " mount_setattr open_tree_attr add_key request_key keyctl bpf perf_event_open userfaultfd"
    " io_uring_setup io_uring_enter io_uring_register kexec_load kexec_file_load init_module"
    " finit_module delete_module open_by_handle_at name_to_handle_at setns reboot swapon swapoff"
    " acct quotactl quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex"
    " sethostname setdomainname lookup_dcookie nfsservctl vhangup iopl ioperm fanotify_init kcmp"
).split()

# Calls that change another process without a signal: a process may only name itself, by 0 in this
# argument.
_OTHERS = {
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
    "migrate_pages": 0,
    "move_pages": 0,
}
_ATTRIBUTES = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat".split()

# Things that outlive processes and are found by a key or a name that is no path, so that landlock
# is not asked.
SHARED_MEMORY = "shmget shmat shmctl shmdt".split()
_BY_KEY = (
    *SHARED_MEMORY,
    *"semget semop semctl semtimedop msgget msgsnd msgrcv msgctl".split(),
    *"mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr".split(),
)
_KIND = 0xF  # the bits of a socket's type that say which it is
# a pair of these can reach nothing but each other
_CONNECTED = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)

_COMMON = {  # numbers that every architecture shares
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
}
_X86_64 = {
    "ioctl": 16, "socket": 41, "clone": 56, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
    "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
    "quotactl": 179, "nfsservctl": 180, "pivot_root": 155, "vhangup": 153, "adjtimex": 159, "chroot": 161, "syslog": 103,
    "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
    "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "prlimit64": 302, "sched_setaffinity": 203,
    "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314, "setpriority": 141, "ioprio_set": 251, "migrate_pages": 256,
    "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220, "msgget": 68,
    "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243,
    "mq_notify": 244, "mq_getsetattr": 245, "socketpair": 53, "move_pages": 279, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
    "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
}  # fmt: skip
_AARCH64 = {
    "ioctl": 29, "socket": 198, "clone": 220, "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225,
    "reboot": 142, "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60, "nfsservctl": 42,
    "pivot_root": 41, "vhangup": 58, "adjtimex": 171, "chroot": 51, "syslog": 116, "lookup_dcookie": 18, "clock_settime": 112,
    "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97, "perf_event_open": 241, "fanotify_init": 262,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "kcmp": 272, "finit_module": 273,
    "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "prlimit64": 261, "sched_setaffinity": 122, "sched_setscheduler": 119,
    "sched_setparam": 118, "sched_setattr": 274, "setpriority": 140, "ioprio_set": 30, "migrate_pages": 238, "move_pages": 239,
    "shmget": 194, "shmat": 196, "shmctl": 195, "shmdt": 197, "semget": 190, "semop": 193, "semctl": 191, "semtimedop": 192,
    "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "mq_open": 180, "mq_unlink": 181, "mq_timedsend": 182,
    "mq_timedreceive": 183, "mq_notify": 184, "mq_getsetattr": 185, "socketpair": 199, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7,
    "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
}  # fmt: skip


class Machine(NamedTuple):
    """An architecture: how the kernel calls it, and the numbers of its calls."""

    audit: int
    numbers: dict[str, int]
    x32: bool = False  # True: a second set of numbers exists above a bit


MACHINES = {
    "x86_64": Machine(0xC000003E, _COMMON | _X86_64, x32=True),
    "aarch64": Machine(0xC00000B7, _COMMON | _AARCH64),
}

OUTWARD = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
FAMILIES = (socket.AF_UNIX, *OUTWARD)  # of sockets, where namespaces keep the network away


def machine(name: str | None = None) -> Machine | None:
    """Return this machine, or one by name; None: there is no filter for it."""
    return MACHINES.get(name or platform.machine())


def program(
    here: Machine,
    families: Sequence[int] = FAMILIES,
    *,
    alone: bool = True,
    refused: Sequence[str] = (),
) -> bytes:
    """Return the filter. `families`: of the sockets that may be made; of netlink only the protocol
    that lists interfaces.

    `alone`: True if namespaces keep the command away from other processes and from files that are
    not its own; otherwise the filter has to. `refused`: further calls that are refused.
    """
    code = [
        _step(_LOAD, k=_ARCH),
        _step(_EQUAL, 1, 0, here.audit),
        _step(_RETURN, k=_KILL),
        _step(_LOAD, k=_NUMBER),
    ]
    if here.x32:
        code += [_step(_AT_LEAST, 0, 1, _X32), _step(_RETURN, k=_ERRNO | errno.ENOSYS)]
    names = {*_REFUSED, *refused, *(() if alone else (*_ATTRIBUTES, *_BY_KEY))}
    for number in sorted(here.numbers[name] for name in names if name in here.numbers):
        code += _steps_for_call(number, [_refuse(errno.EPERM)])
    for name, index in () if alone else _OTHERS.items():
        code += _steps_for_call(
            here.numbers[name],
            [_argument(index), _step(_EQUAL, 0, 1, 0), _ALLOWED, _refuse(errno.EPERM)],
        )
    # its flags lie in memory; C libraries then use clone
    code += _steps_for_call(here.numbers["clone3"], [_refuse(errno.ENOSYS)])
    for name in ("clone", "unshare"):
        code += _steps_for_call(
            here.numbers[name],
            [_argument(0), _step(_MASK, 0, 1, _NEW_USER), _refuse(errno.EPERM), _ALLOWED],
        )
    code += _steps_for_call(
        here.numbers["ioctl"],
        [_argument(1), *[step for request in _TERMINAL for step in _refuse_if(request)], _ALLOWED],
    )
    code += _steps_for_call(here.numbers["socket"], _sockets(families))
    if not alone:
        code += _steps_for_call(here.numbers["socketpair"], _pairs())
    return b"".join([*code, _ALLOWED])


def _sockets(families: Sequence[int]) -> list[bytes]:
    steps = [_argument(0)]
    for family in families:
        passed = (
            [_argument(2), _step(_EQUAL, 0, 1, 0), _ALLOWED, _refuse(errno.EPROTONOSUPPORT)]
            if family == socket.AF_NETLINK
            else [_ALLOWED]
        )
        steps += [_step(_EQUAL, 0, len(passed), family), *passed]
    return [*steps, _refuse(errno.EAFNOSUPPORT)]


def _pairs() -> list[bytes]:
    """Allow pairs of connected sockets only: a datagram socket of a pair can still send to a path."""
    allowed = [step for kind in _CONNECTED for step in (_step(_EQUAL, 0, 1, kind), _ALLOWED)]
    return [_argument(1), _step(_AND, k=_KIND), *allowed, _refuse(errno.EPROTOTYPE)]


def _step(code: int, then: int = 0, otherwise: int = 0, k: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, k)


def _argument(index: int) -> bytes:
    """Load the lower half of an argument, which is all that the kernel looks at for flags, requests
    and families.
    """
    return _step(_LOAD, k=_ARGUMENT + 8 * index)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, k=_ERRNO | number)


def _refuse_if(value: int) -> list[bytes]:
    return [_step(_EQUAL, 0, 1, value), _refuse(errno.EPERM)]


def _steps_for_call(number: int, steps: list[bytes]) -> list[bytes]:
    """Return these steps, for this call only. They have to end in a verdict, since the number is
    gone once an argument was loaded.
    """
    return [_step(_EQUAL, 0, len(steps), number), *steps]


_ALLOWED = _step(_RETURN, k=_ALLOW)
