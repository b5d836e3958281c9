#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_commands.py - how the build is configured, calls the compiler, and installs.

usage: test_commands.py BUILD_FOLDER SHUNT_WERROR CASE
"""

import gzip
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BUILD, WERROR, CASE = sys.argv[1:4]
COMMANDS = json.loads(pathlib.Path(BUILD, "compile_commands.json").read_text())


def old_header():
    """An older nccl.h in the compiler's search path does not replace the one that CMake chose."""
    one = next(entry for entry in COMMANDS if entry["file"].endswith("/tools/base/tool.c"))
    words = shlex.split(one["command"])
    at = words.index("-o")
    del words[at:at + 2]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "nccl.h").write_text("#error an older nccl.h\n")
        # CPATH is searched before every -isystem folder, as CUDA's own folder is if it is the first of these.
        done = subprocess.run([*words, "-E"], cwd=one["directory"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, CPATH=folder))
    assert done.returncode == 0, done.stderr
    assert '/nccl.h"' in done.stdout, f"{one['file']} does not include nccl.h"


def warnings():
    """Warnings are printed, and are errors only on request."""
    wanted = WERROR in ("ON", "TRUE", "1")
    assert any("-Wall" in entry["command"] for entry in COMMANDS)
    for entry in COMMANDS:
        if "-Wall" in entry["command"] and "/tests/" not in entry["file"]:
            assert ("-Werror" in entry["command"]) == wanted, entry["command"]
        assert wanted or "-Werror" not in entry["command"], entry["command"]


def without_cmocka():
    """Without cmocka, as on many machines with GPUs, the tests that need it are not built, and count as skipped."""
    source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", pathlib.Path(BUILD, "CMakeCache.txt").read_text(), re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["cmake", "-S", source, "-B", folder, "-DSHUNT_CUDA=OFF", "-DSHUNT_TESTS=ON",
                               "-DSHUNT_CMOCKA_INCLUDE="],
                              capture_output=True, text=True, check=False)
        listed = subprocess.run(["ctest", "-N"], cwd=folder, capture_output=True, text=True, check=False).stdout
    assert "cmocka not found" in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert all(f"not_built.{part}" in listed for part in ("cpu", "transport", "algorithms")), listed


def installed():
    """The installed command runs from any folder, its compressed manual page is reproducible, and bash's
    completion loads."""
    source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", pathlib.Path(BUILD, "CMakeCache.txt").read_text(), re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        names = {str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file()}
        share = ("man/man1/shunt.1.gz", "bash-completion/completions/shunt", "zsh/site-functions/_shunt",
                 "fish/vendor_completions.d/shunt.fish", "doc/shunt/copyright")
        assert names >= {"bin/shunt", "include/shunt.h", *(f"share/{name}" for name in share)}, names
        page = pathlib.Path(folder, "share/man/man1/shunt.1.gz").read_bytes()
        assert gzip.decompress(page) == pathlib.Path(source, "docs/shunt.1").read_bytes()
        assert page[3] == 0 and page[4:8] == bytes(4), page[:10]  # gzip's header has neither name nor time
        done = subprocess.run([f"{folder}/bin/shunt", "info"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, SHUNT_DEVICE="cpu"))
        assert done.returncode == 0 and os.path.realpath(folder) in done.stdout.splitlines()[0], done
        done = subprocess.run(["bash", "-c", f"source {folder}/share/bash-completion/completions/shunt; complete -p shunt"],
                              capture_output=True, text=True, check=False)
        assert done.stdout == "complete -F _shunt shunt\n", done


{"without_cmocka": without_cmocka, "old_header": old_header, "warnings": warnings, "installed": installed}[CASE]()
