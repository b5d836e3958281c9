#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check.py - scripts/check and scripts/nccl-header in a checkout made for it.

usage: test_check.py SOURCE_FOLDER CASE
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE, CASE = sys.argv[1:3]
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def checkout(folder, files):
    """A repository with one script of the project's, and these files."""
    scripts = pathlib.Path(folder, "scripts")
    scripts.mkdir()
    for name in ("check", "nccl-header", "wheel_files.py"):
        shutil.copy(pathlib.Path(SOURCE, "scripts", name), scripts)
    for name, text in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", *files], cwd=folder, check=True)


def run(folder, *command, **variables):
    return subprocess.run([sys.executable, "-B", *command], cwd=folder, capture_output=True, text=True, check=False,
                          env=dict(os.environ, **variables))


def check():
    """Each fault is a line; a checkout without one passes; --fix adds licence lines and nothing else."""
    if shutil.which("git") is None:
        sys.exit(77)
    good = {"README.md": "See [the code](src/a.c) and `src/a.c`.\n", "src/a.c": f"/* {LICENCE} */\nint a;\n",
            "run": f"#!/bin/sh\n# {LICENCE}\n", "data.csv": "1," * 400 + "\n"}
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, good)
        done = run(folder, "scripts/check")
        assert done.returncode == 0 and not done.stdout, done.stdout
    bad = {"README.md": "word " * 901 + "[lost](nowhere.md) and `src/lost.c`\n", "src/a.c": "int a;\n",
           "src/b.h": f"/* {LICENCE} */\n" + "/" * 121 + "\n", "src/CMakeLists.txt": "# x\n", "run": "#!/bin/sh\ntrue\n"}
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, bad)
        done = run(folder, "scripts/check")
        assert done.returncode == 1, done.stdout
        for fault in ("README.md:1: there is no nowhere.md", "README.md:1: there is no src/lost.c", "words, more than 900",
                      "src/a.c:1: no licence line", "src/CMakeLists.txt:1: no licence line", "run:1: no licence line",
                      "src/b.h:2: 121 characters, more than 120"):
            assert fault in done.stdout, f"no {fault!r} in\n{done.stdout}"
        assert "no licence" not in run(folder, "scripts/check", "--fix").stdout
        assert pathlib.Path(folder, "src/a.c").read_text() == f"/* {LICENCE} */\nint a;\n"
        assert pathlib.Path(folder, "run").read_text() == f"#!/bin/sh\n# {LICENCE}\ntrue\n"
        assert "no licence" not in run(folder, "scripts/check").stdout


def header():
    """The header beside an activated environment's PyTorch is taken; one that is too old is not."""
    with tempfile.TemporaryDirectory() as folder:
        inside = "lib/python3.9/site-packages/nvidia/nccl/include/nccl.h"
        for name, code in (("old", 22703), ("new", 22907)):
            path = pathlib.Path(folder, name, inside)
            path.parent.mkdir(parents=True)
            path.write_text(f"#define NCCL_VERSION_CODE {code}\n")
        checkout(folder, {"README.md": "x\n"})
        taken = pathlib.Path(folder, ".deps/nvidia/nccl/include/nccl.h")
        # No index: what is not on this machine cannot be had.
        nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "CONDA_PREFIX": ""}
        done = run(folder, "scripts/nccl-header", VIRTUAL_ENV=f"{folder}/old", **nowhere)
        assert (done.returncode == 0) == taken.exists(), done.stderr  # this Python may have a wheel of its own
        taken.unlink(missing_ok=True)
        done = run(folder, "scripts/nccl-header", VIRTUAL_ENV=f"{folder}/old", CONDA_PREFIX=f"{folder}/new",
                   PIP_NO_INDEX="1", PIP_FIND_LINKS="")
        assert done.returncode == 0 and "NCCL_VERSION_CODE" in taken.read_text(), done.stderr


{"check": check, "header": header}[CASE]()
