#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_newer.py - `shunt run` for a program whose NCCL has names that Shunt lacks.

usage: test_newer.py CLIENT NEWER_NCCL KNOWN_NCCL SHUNT_LIBRARY AUDIT_LIBRARY SHUNT_COMMAND
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CLIENT, NEWER, KNOWN, SHUNT, AUDIT, COMMAND = sys.argv[1:]
SAY = "import os; print(os.environ['LD_PRELOAD'])"


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SHUNT_", "LD_", "VIRTUAL_ENV", "CONDA_", "PYTHON", "CUDA_"))}
    environment.update(SHUNT_DEVICE="cuda", **variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def expect(done, out, *words):
    assert done.returncode == 0 and done.stdout.split() == out.split(), (done.args, done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr, (done.args, done.stderr)
    assert words or done.stderr == "", (done.args, done.stderr)


def copied(source, *parts):
    """Copy the library, since LD_PRELOAD cannot contain blanks and the build folder's path may."""
    path = pathlib.Path(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(shutil.copy(source, path))


def linked(folder, shunt):
    """A program linked against the newer NCCL starts under `shunt run`."""
    newer = copied(NEWER, folder, "newer", "libnccl.so.2")
    path = {"LD_LIBRARY_PATH": os.path.dirname(newer)}
    expect(run(CLIENT, **path), "plain 23199 1 0 1")
    done = run(CLIENT, LD_PRELOAD=shunt, **path)
    assert done.returncode != 0 and "ncclNewest" in done.stderr, done
    # Names that Shunt knows are bound to it, the real NCCL's own calls do not reach Shunt, and one real NCCL is loaded.
    for audit in ((), ("--audit",)):
        expect(run(COMMAND, "run", *audit, "--", CLIENT, SHUNT_LIB=shunt, **path), "shunt 23199 1 0 2", newer,
               "ncclNewest")
    # The program is found in PATH, and through a script and env.
    script = pathlib.Path(folder, "script")
    script.write_text(f"#!/usr/bin/env -S {CLIENT}\n")
    script.chmod(0o755)
    expect(run(COMMAND, "run", "script", SHUNT_LIB=shunt, PATH=f"/nowhere::{folder}:{os.environ['PATH']}", **path),
           "shunt 23199 1 0 2", newer)


def python(folder, shunt):
    """The newer NCCL in a Python wheel is found by the interpreter's path, also from a script's first line."""
    newer = copied(NEWER, folder, "venv/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2")
    interpreter = pathlib.Path(folder, "venv/bin/python3")
    interpreter.parent.mkdir()
    interpreter.symlink_to(os.path.realpath(sys.executable))
    script = pathlib.Path(folder, "venv/bin/torchrun")
    script.write_text(f"#!{interpreter}\n{SAY}\n")
    script.chmod(0o755)
    said = f"{shunt}:{newer}"
    expect(run(COMMAND, "run", interpreter, "-c", SAY, SHUNT_LIB=shunt), said, newer)
    expect(run(COMMAND, "run", script, SHUNT_LIB=shunt), said, newer)
    expect(run(COMMAND, "run", "torchrun", SHUNT_LIB=shunt, PATH=f"{script.parent}:{os.environ['PATH']}"), said, newer)


def others(folder, shunt):
    """Other cases: the user's setting; an NCCL without new names; a path that cannot be preloaded."""
    newer, known = copied(NEWER, folder, "some", "libnccl.so.2"), copied(KNOWN, folder, "known", "libnccl.so.2")
    blank = copied(NEWER, folder, "a b", "libnccl.so.2")
    say = ("sh", "-c", 'echo "$LD_PRELOAD"')
    for named in (newer, os.path.dirname(newer)):
        expect(run(COMMAND, "run", *say, SHUNT_LIB=shunt, SHUNT_NCCL_PATH=named), f"{shunt}:{newer}", newer)
    expect(run(COMMAND, "run", *say, SHUNT_LIB=shunt, SHUNT_NCCL_PATH=known), shunt)
    done = run(COMMAND, "run", *say, SHUNT_LIB=shunt, SHUNT_NCCL_PATH=blank)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "ncclNewest" in done.stderr, done


def main():
    for case in (linked, python, others):
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            shunt = copied(SHUNT, folder, "shunt", "libnccl.so.2")
            copied(AUDIT, folder, "shunt", "libshunt_audit.so")
            case(folder, shunt)


main()
