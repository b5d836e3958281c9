#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_headers.py - the sources compile against other versions of nccl.h, and their names are known.

usage: test_headers.py SOURCE_FOLDER BUILD_FOLDER here|index

here: headers on this machine; index: the newest of each minor version in the package index, as scripts/nccl-header
would fetch it (kept in the build folder). Each is compiled in every environment of the build, that is, with each
folder that holds a cuda_runtime.h, CUDA's or a stand-in, in C and in C++.
"""

import concurrent.futures
import glob
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

SOURCE, BUILD, CASE = sys.argv[1:4]
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import wheel_files

WHEEL = "nvidia-nccl-cu13"
COPY = os.path.join(BUILD, "include")
USERS = re.compile(r"/(shim/(api|cpu|setup)/\w+\.c|tests/support/reference\.c|tests/abi/fake_nccl\.c)$")


def code(path):
    found = re.search(r"^#define NCCL_VERSION_CODE (\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else 0


def here():
    """{version code: folder} of the headers that CMake or scripts/nccl-header may choose on this machine."""
    places = [COPY, "/usr/include", "/usr/local/include", os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include",
              os.path.join(SOURCE, ".deps/nvidia/nccl/include")]
    for folder in sys.path:
        places += glob.glob(f"{folder}/nvidia/nccl/include")
    paths = [pathlib.Path(place, "nccl.h") for place in places]
    return {code(path): str(path.parent) for path in paths if path.is_file() and code(path) >= 22800}


def fetched(version):
    path = pathlib.Path(BUILD, "nccl-headers", version, "nccl.h")
    if not path.is_file():
        _, files = wheel_files.read(f"{WHEEL}=={version}", ["/nccl/include/nccl.h"])
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(*files.values())
        part.rename(path)
    return str(path.parent)


def index():
    try:
        newest = {tuple(map(int, version.split(".")[:2])): version for version in wheel_files.versions(WHEEL)}
        folders = [fetched(version) for minor, version in newest.items() if minor >= (2, 28)]
        if not folders:
            raise LookupError("it lists none")
    except Exception as error:  # pylint: disable=broad-except
        print(f"skipped: no NCCL wheel can be read from the package index ({type(error).__name__}: {error})")
        sys.exit(77)
    return {code(pathlib.Path(folder, "nccl.h")): folder for folder in folders}


def environment(words, folder):
    """The first folder with a cuda_runtime.h that a command searches, and its language; None without nccl.h."""
    folders = [word[2:] for word in words if word.startswith("-I")]
    folders += [after for word, after in zip(words, words[1:]) if word == "-isystem"]
    folders = [os.path.normpath(os.path.join(folder, one)) for one in folders]
    runtime = next((one for one in folders if os.path.exists(os.path.join(one, "cuda_runtime.h"))), None)
    return (runtime, words[0].endswith("++")) if COPY in folders and runtime else None


def units():
    """(command without output and source, source or None for nccl.h alone, working directory) to compile."""
    found = {}
    for entry in json.loads(pathlib.Path(BUILD, "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(entry["command"])
        words = words[1:] if words[0].endswith("ccache") else words
        place = environment(words, entry["directory"])
        if place is None or "nvcc" in words[0]:
            continue
        at = words.index("-o")
        command = words[:at] + words[at + 2:-2] + ["-fsyntax-only"]
        found.setdefault((*place, None), (command, None, entry["directory"]))
        if USERS.search(entry["file"]):
            found.setdefault((*place, entry["file"]), (command, entry["file"], entry["directory"]))
    return found


def compiles(folder, unit):
    command, source, directory = unit
    command = [word.replace(COPY, folder) if word == f"-I{COPY}" else word for word in command]
    language = "c++" if command[0].endswith("++") else "c"
    done = subprocess.run([*command, *([source] if source else ["-x", language, "-"])], cwd=directory, text=True,
                          input="#include <nccl.h>\n", capture_output=True, check=False, timeout=120)
    return None if done.returncode == 0 else f"{source or 'nccl.h'} ({folder}):\n{done.stderr}"


def unknown(folder):
    """Functions that a header declares and shim/names/names.def lacks."""
    table = pathlib.Path(SOURCE, "shim/names/names.def").read_text(encoding="utf-8")
    known = set(re.findall(r"^SHIM_\w+\((\w+)\)", table, re.MULTILINE))
    header = pathlib.Path(folder, "nccl.h").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"^\s*(?:ncclResult_t|const char ?\*)\s+(nccl\w+)\s*\(", header, re.MULTILINE)) - known)


def main():
    headers = here() if CASE == "here" else index()
    found = units()
    assert headers and len(found) > 20, (headers, len(found))
    # A build with all tests has the emulated GPUs' own cuda_runtime.h.
    cache = pathlib.Path(BUILD, "CMakeCache.txt").read_text(encoding="utf-8")
    emulated = any("/emulator/" in runtime for runtime, *_ in found)
    assert emulated or "SHUNT_ALL_TESTS:BOOL=ON" not in cache, len(found)
    faults = [f"{folder}/nccl.h: shim/names/names.def lacks {unknown(folder)}; run scripts/nccl-names"
              for folder in headers.values() if unknown(folder)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compiles, folder, unit) for folder in headers.values() for unit in found.values()]
        faults += [job.result() for job in jobs if job.result()]
    print(f"nccl.h {sorted(headers)}: {len(found)} compilations each")
    sys.exit("\n".join(faults) or 0)


main()
