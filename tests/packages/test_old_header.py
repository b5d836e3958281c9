#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_old_header.py - an older nccl.h in the compiler's search path is not taken in place of the one that CMake chose.

usage: test_old_header.py BUILD_FOLDER
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

FILE = "/tools/tool.c"

commands = json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text())
one = next(entry for entry in commands if entry["file"].endswith(FILE))
words = shlex.split(one["command"])
at = words.index("-o")
del words[at:at + 2]
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "nccl.h").write_text("#error an older nccl.h\n")
    # CPATH is searched before every -isystem folder, as CUDA's own is if it comes first among these.
    done = subprocess.run([*words, "-E"], cwd=one["directory"], capture_output=True, text=True, check=False,
                          env=dict(os.environ, CPATH=folder))
assert done.returncode == 0, done.stderr
assert "/nccl.h\"" in done.stdout, f"{FILE} does not include nccl.h"
