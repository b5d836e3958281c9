#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_audit.py - libnccl_ep.so.0 in a program that links it, or opens NVIDIA's by an absolute path.

usage: test_audit.py CLIENT LINKED_CLIENT LIBRARY FAKE FAKE_NCCL AUDIT_LIBRARY SHUNT_COMMAND

A fake plays NVIDIA's library. Its version is seen after a group was created, if the call came to it. Another plays a
libnccl.so.2 that serves groups.
"""

import os
import shutil
import subprocess
import sys
import tempfile

CLIENT, LINKED, OURS, FAKE, NCCL, AUDIT, COMMAND = (os.path.realpath(path) for path in sys.argv[1:])
VERSION, OUR_VERSION = "12345", "200"


# Some lead to folders where this machine may have NVIDIA's.
DROPPED = ("SHUNT_", "LD_", "CONDA_", "CUDA_", "HOME", "PYTHON", "VIRTUAL_ENV")


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    environment.update({"SHUNT_TUNE": "0", **variables})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command} {variables}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.split()


def expect(library, loaded, version, *command, **variables):
    file, *rest = run(*command, **variables)
    assert [os.path.realpath(file), *rest] == [library, str(loaded), version], (command, variables, file, rest)


def main():
    theirs = os.path.dirname(FAKE)
    with tempfile.TemporaryDirectory() as folder:
        link_name = shutil.copy(FAKE, os.path.join(folder, "libnccl_ep.so"))
        for path in (FAKE, link_name):
            expect(path, 1, VERSION, CLIENT, path, "create")
            # The library that the program asked for is found, although the linker has answered for its path.
            expect(OURS, 2, VERSION, CLIENT, path, "create", LD_AUDIT=AUDIT, SHUNT_NCCL_EP_PATH=path)
            expect(OURS, 1, OUR_VERSION, COMMAND, "run", "--audit", "--", CLIENT, path)
            # Without the audit library Shunt's is not even loaded, so NVIDIA's works as ever.
            expect(path, 1, VERSION, COMMAND, "run", "--", CLIENT, path, "create")
        # A similar name, and an audit library without libnccl_ep.so.0 beside its libnccl.so.2.
        other = shutil.copy(FAKE, os.path.join(folder, "libnccl_ep_other.so"))
        expect(other, 0, VERSION, CLIENT, other, "create", LD_AUDIT=AUDIT)
        alone = shutil.copy(os.path.join(os.path.dirname(OURS), "libnccl.so.2"), folder)
        expect(link_name, 1, VERSION, CLIENT, link_name, "create", LD_AUDIT=AUDIT, SHUNT_LIB=alone)
        expect(FAKE, 1, VERSION, COMMAND, "run", "--", LINKED, "linked", LD_LIBRARY_PATH=theirs, SHUNT_LIB=alone)
    # A program that links it, with NVIDIA's behind ours in LD_LIBRARY_PATH, or preloaded.
    expect(FAKE, 1, VERSION, LINKED, "linked", LD_LIBRARY_PATH=theirs)
    expect(OURS, 1, OUR_VERSION, COMMAND, "run", "--", LINKED, "linked", LD_LIBRARY_PATH=theirs)
    expect(OURS, 1, OUR_VERSION, LINKED, "linked", LD_LIBRARY_PATH=theirs, LD_AUDIT=AUDIT)
    both = f"{os.path.dirname(OURS)}:{theirs}"
    expect(OURS, 2, VERSION, LINKED, "linked", "create", LD_LIBRARY_PATH=both)
    expect(OURS, 2, VERSION, LINKED, "linked", "create", LD_PRELOAD=f"{OURS}:{FAKE}")
    # The service of an NCCL that the program has opened for itself, as Python does.
    expect(OURS, 1, OUR_VERSION, CLIENT, OURS, "create", NCCL, LD_LIBRARY_PATH=theirs)
    expect(OURS, 2, VERSION, CLIENT, OURS, "create", LD_LIBRARY_PATH=theirs)


main()
