#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_rooms.py - includes between folders follow docs/design.md.

usage: test_rooms.py SOURCE_FOLDER

The tables under "Folders" there say what each folder may include ("may use"); both
rows apply to a folder in a folder. An include that no row allows fails, and so do
rows that allow a cycle or an include that no file needs, and files that include
each other in a cycle. A file and the header of its name count as one; a header
without such a file only has shared declarations, and does not count.
"""

import os
import pathlib
import re
import sys

ROW = re.compile(r"^\| `([\w/]+/)` \|[^|]*\|([^|]*)\|", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)', re.MULTILINE)
SUFFIXES = {".c", ".h", ".S", ".cu", ".cuh", ".def"}
# The log reads settings, and the settings log wrong values.
EXCUSED = {("shim/base/log", "shim/base/settings")}


def rows(design):
    """What each folder may include, from the rows of the tables."""
    text = design.split("\n## Folders\n", 1)[1].split("\n## ", 1)[0]
    return {folder: re.findall(r"`([\w./]+)`", uses) for folder, uses in ROW.findall(text)}


def read(source, folders):
    """The files of the folders, and what each includes: {file: {file, ...}}, by paths from the source folder."""
    texts = {}
    for folder in {folder.split("/")[0] for folder in folders}:
        for path in sorted((source / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                texts[str(path.relative_to(source))] = path.read_text()
    files, unknown = {}, []
    for file, text in texts.items():
        files[file] = set()
        for mark, name in INCLUDE.findall(text):
            places = ["include/" + name]
            if mark == '"':
                places = [os.path.join(os.path.dirname(file), name), name] + places
            found = [place for place in map(os.path.normpath, places) if place in texts]
            files[file].update(found[:1])
            if not found and mark == '"':
                unknown.append(f"{file} includes {name}, which is in no folder")
    return files, unknown


def forbidden(table, files):
    """Includes that a row does not allow."""
    found = []
    for file, included in sorted(files.items()):
        folders = [folder for folder in table if file.startswith(folder)]
        if not folders:
            found.append(f"{file} is in no folder")
        for target in sorted(included):
            if any(not target.startswith(folder) and not target.startswith(tuple(table[folder])) for folder in folders):
                found.append(f"{file} includes {target}")
    return found


def unused(table, files):
    """Includes that a row allows and no file needs."""
    return [f"{folder} does not use {use}" for folder, uses in table.items() for use in uses
            if not any(target.startswith(use) for file in files if file.startswith(folder) for target in files[file])]


def circles(graph):
    """Groups of nodes that can all reach each other (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in number:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == number[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append("a circle: " + ", ".join(sorted(group)))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def module(file):
    return file if file.endswith(".def") else os.path.splitext(file)[0]


def arrows(table):
    """The includes that the rows allow, as edges between folders."""
    return {folder: {other for other in table for use in uses if use.startswith(other) and other != folder}
            for folder, uses in table.items()}


def faults(table, files):
    among = {module(file): set() for file in files if not file.endswith((".h", ".def"))}
    for file, included in files.items():
        if module(file) in among:
            among[module(file)].update(module(target) for target in included if module(target) in among)
    for one, other in EXCUSED:
        among[one].discard(other)
    return forbidden(table, files) + unused(table, files) + circles(arrows(table)) + circles(among)


def added(files, file, target):
    """The files with one more include."""
    assert file in files and target in files, f"{file} or {target} is gone"
    return {**files, file: files[file] | {target}}


def main():
    source = pathlib.Path(sys.argv[1])
    table = rows((source / "docs/design.md").read_text())
    files, found = read(source, table)
    found += faults(table, files)
    if not found:
        # The checks must detect these injected faults.
        for file, target in (("shim/base/log.c", "shim/comm/comm.h"), ("transport/lock.c", "algorithms/algorithm.h"),
                             ("selector/policy.c", "shim/base/log.h"), ("tools/run/run.c", "shim/comm/comm.h"),
                             ("selector/topology/xml.c", "selector/selector.h"),
                             ("tools/base/tool.c", "tools/run/run.h"),
                             ("shim/call/group_state.h", "shim/call/group.h"),
                             ("shim/setup/across.c", "algorithms/nodes/nodes.h"),
                             ("shim/comm/comm.h", "transport/network/network.h"),
                             ("shim/api/encryption.c", "shim/nodes/invite.h")):
            if not faults(table, added(files, file, target)):
                found.append(f"an include of {target} in {file} is not found")
        if not circles(arrows({**table, "shim/base/": ["shim/comm/"]})):
            found.append("a circle in the table is not found")
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
