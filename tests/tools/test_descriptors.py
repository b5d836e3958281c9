#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_descriptors.py - the library keeps off the standard descriptors' numbers, and no write of it raises SIGPIPE.

usage: test_descriptors.py SOURCE_FOLDER

What it opens goes through net_descriptor (transport/transport.h), unless it is open to read alone, and so for moments;
what it writes to a file, a terminal or a pipe goes through net_write, to a socket with MSG_NOSIGNAL.
"""

import pathlib
import re
import sys

HOME = "transport/descriptor.c"
ALONE = "shim/audit/audit.c"  # uses nothing of the library; tests/audit tests a broken stderr
OPENS = re.compile(r"(?<![.>\w])((open|openat|shm_open|memfd_create|socket|accept4?|pipe2?|eventfd|epoll_create1?|dup[23]?|socketpair|"
                   r"timerfd_create|signalfd|inotify_init1?|mkstemp|mkostemp)\(|F_DUPFD)")
WRITES = re.compile(r"\b(write|writev|dprintf|vdprintf|perror|psignal)\(|\bf(printf|puts|write)\([^;]*std(out|err)\b|(?<!\w)printf\(")
SENDS = re.compile(r"(?<![.>\w])(send|sendto|sendmsg|sendmmsg)\((?=\w*(socket|connection))")
STREAMS = re.compile(r"\bfopen\((?!.*\"re\"\))|\bpopen\(|\bfdopen\((?!.*\"r\"\))")


def kind(line):
    """What is wrong with a line of code; None if nothing is."""
    if OPENS.search(line) and "net_descriptor(" not in line and "O_RDONLY" not in line:
        return "not through net_descriptor"
    if WRITES.search(line):
        return "not by net_write"
    if SENDS.search(line) and "MSG_NOSIGNAL" not in line:
        return "no MSG_NOSIGNAL"
    return 'neither fopen(.., "re") nor fdopen(.., "r")' if STREAMS.search(line) else None


def code(path):
    """The lines of a file without comments, numbered."""
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), path.read_text(), flags=re.DOTALL)
    return enumerate((re.sub(r"\bprintf, \d|//.*", "", line) for line in text.splitlines()), 1)


def faults(source):
    for folder in ("shim", "selector", "algorithms", "transport"):
        for path in sorted((source / folder).rglob("*.c*")):
            if path.suffix not in (".c", ".cc", ".cu", ".cuh") or path in (source / HOME, source / ALONE):
                continue
            for number, line in code(path):
                wrong = kind(line)
                if wrong:
                    yield f"{path.relative_to(source)}:{number}: {wrong}: {line.strip()}"


def main():
    for line in ("int fd = open(path, O_RDWR);", "a = socket(AF_UNIX, 0, 0);", "b = fcntl(a, F_DUPFD_CLOEXEC, 0);",
                 "write(2, text, 3);", 'fprintf(stderr, "x");', 'printf("x");',
                 "send(connection, x, 1, 0);", 'FILE *f = fopen(name, "w");', 'fdopen(fd, "w")', 'fopen(name, "r")'):
        assert kind(line), f"not found: {line}"
    for line in ("int fd = net_descriptor(open(path, O_RDWR));", "open(path, O_RDONLY | O_CLOEXEC)", "pwrite(a, b, 1, 0);",
                 "send(connection, x, 1, MSG_NOSIGNAL);", 'fopen(path, "re")', "net_write(fd, text, 3);", "snprintf(a, 3);",
                 'fdopen(fd, "r")'):
        assert kind(line) is None, line
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "no faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
