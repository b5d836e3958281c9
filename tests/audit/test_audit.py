#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_audit.py - libshunt_audit.so, used by a program.

usage: test_audit.py CLIENT LINKED_CLIENT SHUNT_LIBRARY AUDIT_LIBRARY FAKE_NCCL SHUNT_COMMAND

The client opens an NCCL by an absolute path; a fake plays the real one. The
version is the fake's in any case: with Shunt in between it came through Shunt,
which must have opened the fake although the audit library watches every open.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CLIENT, LINKED, SHUNT, AUDIT, FAKE, COMMAND = sys.argv[1:]
VERSION = "23199"


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNT_", "LD_"))}
    environment.update(SHUNT_DEVICE="cuda", SHUNT_NCCL_PATH=FAKE, **variables)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command} {variables}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def expect(who, loaded, *command, **variables):
    done = run(*command, **variables)
    assert done.stdout.split() == [who, VERSION, str(loaded)], (command, variables, done.stdout, done.stderr)
    return done


def main():
    with tempfile.TemporaryDirectory() as folder:
        old_name = shutil.copy(FAKE, os.path.join(folder, "libnccl.so"))
        other = shutil.copy(FAKE, os.path.join(folder, "libnccl-net.so"))
        alone = shutil.copy(AUDIT, os.path.join(folder, "libshunt_audit.so"))
        for path in (FAKE, old_name):
            expect("plain", 1, CLIENT, path)
            expect("plain", 2, CLIENT, path, LD_PRELOAD=SHUNT)  # a preload cannot do this
            expect("shunt", 2, CLIENT, path, LD_AUDIT=AUDIT)
            expect("shunt", 2, COMMAND, "run", "--audit", "--", CLIENT, path, SHUNT_LIB=SHUNT)
        # By name, and linked: the audit library alone is enough.
        expect("shunt", 2, CLIENT, "libnccl.so.2", LD_AUDIT=AUDIT)
        expect("plain", 1, LINKED, FAKE)
        expect("shunt", 2, LINKED, FAKE, LD_AUDIT=AUDIT)
        # A similar name is left alone.
        run(CLIENT, other, LD_AUDIT=AUDIT)
        assert run(CLIENT, other, LD_AUDIT=AUDIT).stdout.startswith("plain")
        # The path of Shunt is given; and is wrong.
        expect("shunt", 2, CLIENT, FAKE, LD_AUDIT=alone, SHUNT_LIB=SHUNT)
        os.remove(old_name)
        done = expect("plain", 1, CLIENT, FAKE, LD_AUDIT=alone)
        assert done.stderr.count("\n") == 1 and "SHUNT_LIB" in done.stderr, done.stderr
        done = expect("plain", 1, CLIENT, FAKE, LD_AUDIT=AUDIT, SHUNT_LIB="/nowhere/libnccl.so.2")
        assert done.stderr.count("\n") == 1, done.stderr
        # Nobody reads stderr: the program does not die of the line.
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([CLIENT, FAKE], env=dict(os.environ, LD_AUDIT=AUDIT, SHUNT_LIB="/nowhere/libnccl.so.2"),
                              stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60, check=False)
        os.close(writer)
        assert done.returncode == 0 and done.stdout.startswith("plain"), done
        # The command reports an audit library that is not beside the library.
        moved = shutil.copy(SHUNT, os.path.join(pathlib.Path(folder), "libnccl.so.2"))
        os.remove(alone)
        done = subprocess.run([COMMAND, "run", "--audit", "true"], env=dict(os.environ, SHUNT_LIB=moved),
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "libshunt_audit.so" in done.stderr, done


main()
