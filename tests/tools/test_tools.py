#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_tools.py - the command `shunt`, run like a user runs it.

usage: test_tools.py SHUNT PRELOADABLE_LIBRARY SOURCE_FOLDER CASE

On the CPU device. Exit status 0: the case passed; a failed assertion shows
the expected and the actual value.
"""

import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

SHUNT, PRELOADABLE, SOURCE = sys.argv[1:4]
LIMIT = 800  # seconds, to end a hang: a sanitizer's build on a busy machine is slow


def shunt(*arguments, **variables):
    # On a busy machine ranks may take longer to meet than the default limit. The user's tuned table is not used.
    environment = dict(os.environ, SHUNT_TIMEOUT_MS="600000", SHUNT_CACHE_DIR="/nowhere")
    environment.update(variables)
    return subprocess.run([SHUNT, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="surrogateescape", timeout=LIMIT)


def names():
    """A variable that looks like a setting but is none is reported; settings and SHUNT_LIB are not."""
    good = {"SHUNT_STATS": "", "SHUNT_IBV_SO": "", "SHUNT_DEBUG": "warn", "SHUNTED": "1"}
    for command in (("info",), ("run", "--", "true"), ("run", "--report", "--", "true")):
        lines = shunt(*command, SHUNT_STAT="1", SHUNT_="", **good).stderr.splitlines()
        said = sorted(line for line in lines if "is no setting" in line)
        assert len(said) == 2 and f"shunt {command[0]}: SHUNT_STAT is no setting" in said[1], (command, lines)
        assert "is no setting" not in shunt(*command, **good).stderr
    assert "is no setting" not in shunt("settings", SHUNT_STAT="1").stderr


def expect(done, status, *words):
    """Check the exit status, and words on stderr (or, on success, stdout)."""
    text = done.stderr if status else done.stdout
    assert done.returncode == status, f"{done.args}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    for word in words:
        assert word in text, f"{done.args}: no {word!r} in\n{text}"
    return done


def usage():
    for arguments, word in (
        ((), "usage"),
        (("nonsense",), "nonsense"),
        (("bench", "-q"), "-q"),
        (("bench", "-t", "4", "-g", "4"), "-t 4 -g 4: at most 8 ranks"),
        (("bench", "-t", "9"), "-t 9: must be a number"),
        (("bench", "-c", "x"), "-c x: must be a number"),
        (("bench", "-G", "-1"), "-G -1: must be a number"),
        (("bench", "-r", "x"), "--root x"),
        (("bench", "--csv", "-", "--json", "-"), "cannot both go to standard output"),
        (("bench", "-z", "1", "--host-time"), "sync_us is a call and a wait"),
        (("bench", "-m", "2", "--beside"), "-z and -m do not go with"),
        (("bench", "-i", "x"), "-i x: must be a size"),
        (("bench", "-m", "0"), "-m 0: must be a number"),
        (("bench", "-a", "1"), "-a 1: the time is always the slowest rank's, which is -a 3"),
        (("bench", "-p", "x"), "-p x: must be a number"),
        (("bench", "-r", "all"), "--root all: one run has one root"),
        (("bench", "-C", "1"), "no option -C: use --host-time"),
        (("bench", "-J", "f"), "no option -J: use --json"),
        (("bench", "-N", "2"), "no option -N: use --rounds"),
        (("bench", "-R", "1"), "no option -R: buffers are as"),
        (("bench", "-T", "9"), "no option -T: a run ends when"),
        *((("bench", word, "1"), f"no option -{letter}: ") for word, letter in (
            ("--timeout", "T"), ("--report_cputime", "C"), ("--stream_null", "y"), ("--local_register", "R"),
            ("--run_cycles", "N"), ("--report_timestamps", "S"), ("--memory_report", "M"), ("--cta_policy", "x"))),
        (("bench", "--timeout=4"), "no option -T: a run ends when"),
        (("bench", "--timeout"), "no option -T: a run ends when"),
        (("bench", "--place", "here"), "--place here: must be out, in or both"),
        (("bench", "--place", "in", "--collective", "alltoall"), "no such form"),
        (("bench", "-b"), "-b"),
        (("bench", "-b", "12X"), "12X"),
        (("bench", "-b", "0"), "-b 0"),
        (("bench", "-e", "99999999999999999999"), "-e"),
        (("bench", "-e", "-1"), "-e -1"),
        (("bench", "-f", "1"), "-f 1"),
        (("bench", "-g", "9"), "-g 9"),
        (("bench", "-n", "0"), "-n 0"),
        (("bench", "-d", "int7"), "int7: no such type; there are: int8 "),
        (("bench", "-o", "xor"), "xor"),
        (("bench", "--collective", "allsend"), "allsend"),
        (("bench", "--collective", "alltoall", "--in-place"), "no such form"),
        (("bench", "--collective", "sendrecv", "--in-place"), "no such form"),
        (("bench", "--messages"), "alltoall"),
        (("bench", "--roots"), "allgather"),
        (("bench", "--root", "8"), "--root 8"),
        (("bench", "-g", "2", "--root", "2"), "--root 2"),
        (("bench", "--check", "2"), "--check 2"),
        (("bench", "--graph=1"), "--graph=1"),
        (("bench", "--csv"), "--csv"),
        (("bench", "--nothing"), "--nothing"),
        (("bench", "extra"), "extra"),
        (("bench", "--graph"), "GPU"),
        (("bench", "--floor"), "no floor"),
        (("bench", "--host-time"), "GPU"),
        (("bench", "--beside"), "GPU"),
        (("bench", "--beside=1"), "--beside=1"),
        (("bench", "--host-time", "--graph"), "eager"),
        (("bench", "-b", "1M", "-e", "1K"), "-b"),
        (("bench", "--launched"), "which rank this is"),
        (("bench", "--launched", "-g", "2"), "not -g"),
        (("run",), "no command"),
        (("run", "-x"), "-x"),
        (("info", "x"), "x"),
        (("settings", "--html"), "--html"),
    ):
        expect(shunt(*arguments), 2, word)
    for command in ("bench", "tune", "run", "doctor", "info", "settings"):
        expect(shunt(command, "--help"), 0, f"usage: shunt {command}")
    expect(shunt("--help"), 0, "usage: shunt")
    for word in ("--version", "-V", "version"):
        expect(shunt(word), 0, "shunt ")
    expect(shunt("help"), 0, "usage: shunt")
    for asking in ("help", "--help", "-h"):
        for command in ("bench", "watch"):
            expect(shunt(asking, command), 0, f"usage: shunt {command}")
        expect(shunt(asking, "nonsense"), 2, "shunt: there is no command nonsense; see: shunt --help")
    expect(shunt("bench", "--csv", "/nowhere/file.csv"), 1, "/nowhere/file.csv")
    for command in ("bench", "info", "settings"):
        expect(shunt(command, SHUNT_LIB="/nowhere/libnccl.so.2"), 1, "/nowhere/libnccl.so.2")


def lost_output():
    """Output that cannot be written is a failure."""
    for arguments in (("info",), ("settings",), ("watch", "--once"), ("doctor",), ("help",), ("help", "bench"), ("--version",)):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([SHUNT, *arguments], env=dict(os.environ, SHUNT_CACHE_DIR="/nowhere"), stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
        lines = [line for line in done.stderr.splitlines() if "standard output could not be written whole" in line]
        assert done.returncode == 1 and len(lines) == 1, (arguments, done)


def watch_json():
    """--json takes a file, - or nothing, as its place allows; a number behind it is a process."""
    def lines(text):
        return [json.loads(line)["communicators"] for line in text.splitlines()]

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "out.json")
        done = expect(shunt("watch", "--once", "--json"), 0)
        assert len(lines(done.stdout)) == 1 and done.stderr == "", done
        for arguments in (("--json", "--once"), ("--json", "--all", "--once")):
            assert len(lines(expect(shunt("watch", *arguments), 0).stdout)) == 1, arguments
        done = expect(shunt("watch", "--json", "-", "--once"), 0)
        assert len(lines(done.stdout)) == 1 and "communicator" in done.stderr, done
        done = expect(shunt("watch", "--json", str(file), "--once"), 0, "communicator")
        assert len(lines(file.read_text())) == 1 and done.stderr == "", done
    done = expect(shunt("watch", "--once", "--json", str(os.getpid())), 1, f"process {os.getpid()} has no record")
    assert lines(done.stdout) == [[]], done
    expect(shunt("watch", "--once", "--json", "/nowhere/file"), 1, "shunt watch: /nowhere/file: No such file")
    expect(shunt("watch", "--once", "--json", "/dev/full"), 1, "shunt watch: /dev/full could not be written whole")


def run():
    show = "import os; print(*(os.environ.get(n, '') for n in ('LD_PRELOAD', 'VLLM_NCCL_SO_PATH', 'SGLANG_NCCL_SO_PATH')))"
    folder = tempfile.TemporaryDirectory()
    library = shutil.copy(PRELOADABLE, os.path.realpath(folder.name))  # the build folder's name may have blanks
    environment = {"SHUNT_LIB": library}
    done = expect(shunt("run", "--", sys.executable, "-c", show, **environment), 0)
    assert done.stdout.split() == [library] * 3, done.stdout
    # Shunt is put before other preloaded libraries, also without the dashes. (An address sanitizer's run time must be
    # the first library of a process.)
    done = expect(shunt("run", sys.executable, "-c", show, LD_PRELOAD=library,
                        ASAN_OPTIONS="verify_asan_link_order=0", **environment), 0)
    assert done.stdout.split()[0] == f"{library}:{library}", done.stdout
    # The program's exit status is returned, and its arguments arrive unchanged.
    expect(shunt("run", "--", "sh", "-c", "exit 7", **environment), 7)
    assert shunt("run", "--", "printf", "%s", "a  b", **environment).stdout == "a  b"
    expect(shunt("run", "--", "/nowhere/program", **environment), 127, "/nowhere/program")
    with open("/dev/full", "w") as full:  # the status does not depend on whether the line can be printed
        assert subprocess.run([SHUNT, "run", "--", "/nowhere/program"], stderr=full,
                              env=dict(os.environ, **environment)).returncode == 127
    # A path with a blank, which LD_PRELOAD cannot contain, is refused.
    blank = shutil.copy(library, os.path.join(folder.name, "a b.so"))
    expect(shunt("run", "true", SHUNT_LIB=blank), 1, "blank")
    folder.cleanup()


def info():
    expect(shunt("info"), 0, "Shunt:", "Device: CPU", "NCCL:", "Settings:", "SHUNT_DEVICE=cpu  (environment)",
           "allreduce, ")


def info_json():
    """The JSON has the text's facts, also for a library that cannot be opened; a file that cannot be written is
    a fault."""
    text = expect(shunt("info"), 0).stdout
    done = expect(shunt("info", "--json", "-"), 0)
    seen = json.loads(done.stdout)
    assert text in done.stderr, done
    lines = text.splitlines()
    assert lines[0] == f"Shunt: {seen['shunt']}, {seen['library']}" and seen["device"] == "cpu", seen
    assert lines[1] == (f"NCCL: {seen['nccl'] or '?'}, {seen['nccl_path']}" if seen["nccl_path"] else "NCCL: none found"), seen
    for setting in seen["settings"]:
        assert f"  {setting['name']}={setting['value']}  ({setting['origin']})" in lines, setting
    assert {"name": "SHUNT_DEVICE", "value": "cpu", "default": "auto", "origin": "environment"} in seen["settings"], seen
    assert seen["class"] == "host-4" and seen["tables"]["allreduce"], seen
    assert all(f"  {row}" in lines for rows in seen["tables"].values() for row in rows), seen
    assert seen["error"] is None and len(seen["gpus"]) == len(seen["links"]) == min(seen["gpu_count"], 16), seen
    with tempfile.TemporaryDirectory() as folder:
        odd = os.fsdecode(b"a\xff\"b\\")  # not UTF-8
        assert expect(shunt("info", "--json", f"{folder}/info.json", SHUNT_CACHE_DIR=odd), 0).stdout
        found = json.loads(pathlib.Path(folder, "info.json").read_text(encoding="utf-8"))
        values = {setting["name"]: setting["value"] for setting in found["settings"]}
        assert found.keys() == seen.keys() and values["SHUNT_CACHE_DIR"] == "a\ufffd\"b\\", found
        done = expect(shunt("info", "--json", "-", SHUNT_LIB="/nowhere/lib.so"), 1, "/nowhere/lib.so")
        none = json.loads(done.stdout)
        assert none.keys() == seen.keys() and "/nowhere/lib.so" in none.pop("error"), none
        assert not any(none.values()), none
    expect(shunt("info", "--json", "/nowhere/file.json"), 1, "/nowhere/file.json: No such file")
    expect(shunt("info", "--json", "/dev/full"), 1, "could not be written whole")
    expect(shunt("info", "--json"), 2, "--json")
    expect(shunt("info", "--json", "-", "--topology"), 2, "--json does not go with --topology")


def topology():
    machines = pathlib.Path(SOURCE, "tests/topology/machines")
    expect(shunt("info", "--topology"), 0, "GPUs:", "NICs:", "allreduce, host-4:")
    expect(shunt("info", "--topology", machines / "nvswitch-8-nics-8.xml"), 0, "nvswitch-sm90-8", "NVS18", "mlx5_7",
           "allreduce, nvswitch-sm90-8:")
    # A written topology file is read back as the same machine.
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump.xml")
        first = expect(shunt("info", "--topology", machines / "cube-8.xml", "--dump", dump), 0, "bridges-sm70-8")
        assert first.stdout == expect(shunt("info", "--topology", dump), 0).stdout
        done = expect(shunt("info", "--topology", machines / "cube-8.xml", "--dump", "-"), 0)
        assert done.stdout == pathlib.Path(dump).read_text() and first.stdout in done.stderr, done
        pathlib.Path(dump).write_text('<system version="1">\n  <cpu numaid="x"/>\n</system>\n')
        expect(shunt("info", "--topology", dump), 1, "dump.xml:2:16: expected numaid")
        # With NCCL_TOPO_FILE devices' positions are from that file, and a malformed file is ignored.
        done = expect(shunt("info", "--topology", NCCL_TOPO_FILE=dump), 0, "GPUs:")
        assert "dump.xml:2:16: expected numaid" in done.stderr, done.stderr
    expect(shunt("info", "--topology", "/nowhere/file.xml"), 1, "/nowhere/file.xml: No such file")
    expect(shunt("info", "--topology", "--dump", "/nowhere/file.xml"), 1, "/nowhere/file.xml: No such file")
    expect(shunt("info", "--dump", "file.xml"), 2, "--topology")
    expect(shunt("info", "--topology", "--dump"), 2, "--dump")


def settings():
    table = expect(shunt("settings", "--markdown"), 0, "| variable |").stdout.splitlines()
    text = expect(shunt("settings"), 0).stdout
    for row in table[2:]:
        assert row.split("`")[1] in text, row


def documents():
    """The parts that scripts/update-docs generates are up to date."""
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/update-docs", "--check", SHUNT], capture_output=True,
                          text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{done.stderr}run scripts/update-docs"


def skip_without(program):
    if not shutil.which(program):
        print(f"skipped: no {program}")
        sys.exit(77)


def manual():
    """groff has no fault to find with the manual page."""
    skip_without("groff")
    done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-z", f"{SOURCE}/docs/shunt.1"], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
    assert done.returncode == 0 and not done.stderr, done.stderr


def completed(*words):
    """The words that bash's completion offers for the last word."""
    script = 'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _shunt; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", f"{SOURCE}/packaging/completion/shunt.bash", "shunt", *words],
                          cwd=f"{SOURCE}/docs", capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []


def completions():
    """bash's completion offers commands, options, their values, files, and a program's command line."""
    names = re.findall(r"^  (\w+) ", shunt("--help").stdout, re.MULTILINE)
    assert completed("") == [*names, "help", "version", "--help", "--version"], completed("")
    for command in names:
        told = re.findall(r"^  (--?[a-zA-Z-]+)", shunt(command, "--help").stdout, re.MULTILINE)
        assert completed(command, "-") == list(dict.fromkeys(told)), (command, completed(command, "-"))
    for words, wanted in (
        (("d",), ["doctor"]),
        (("nonsense", ""), []),
        (("bench", "--c"), ["--collective", "--check", "--csv", "--choose"]),
        (("bench", "--collective", "allr"), ["allreduce"]),
        (("bench", "--graph", "-o", "m"), ["max", "min"]),
        (("bench", "--check", ""), ["0", "1"]),
        (("bench", "-b", ""), []),
        (("bench", "-b", "1K", "--js"), ["--json"]),
        (("bench", "--json", "shunt"), ["shunt.1"]),
        (("tune", "--mode", ""), ["eager", "captured"]),
        (("tune", "--diff", "shunt.1", "shunt"), ["shunt.1"]),
        (("tune", "--diff", "shunt.1", "shunt.1", "--p"), ["--plot"]),
        (("info", "--topology", "shunt"), ["shunt.1"]),
        (("info", "--topology", "--d"), ["--dump"]),
        (("info", "--topology", "shunt.1", "--d"), ["--dump"]),
        (("run", "--rep"), ["--report"]),
        (("run", "--json", "shunt"), ["shunt.1"]),
        (("run", "mktem"), ["mktemp"]),
        (("run", "--report", "--", "mktem"), ["mktemp"]),
        (("run", "mktemp", "shunt"), ["shunt.1"]),
        (("run", "mktemp", "--rep"), []),
        (("doctor", "--limit", "5", "--", "mktem"), ["mktemp"]),
        (("doctor", "mktem"), []),
    ):
        assert completed(*words) == wanted, (words, completed(*words), wanted)
    assert str(os.getpid()) in completed("watch", str(os.getpid()))


def parses(shell, file):
    skip_without(shell)
    subprocess.run([shell, "-n", f"{SOURCE}/packaging/completion/{file}"], check=True, timeout=LIMIT)


def completions_zsh():
    parses("zsh", "_shunt")


def completions_fish():
    parses("fish", "shunt.fish")


def options():
    """Every option of a command is in its help, and every option in a help exists; there is one version."""
    for command in re.findall(r"^  (\w+) ", shunt("--help").stdout, re.MULTILINE):
        help_text = expect(shunt(command, "--help"), 0).stdout
        sources = [path for rest in ("", "_options") for path in pathlib.Path(SOURCE, "tools").glob(f"*/{command}{rest}.c")]
        assert sources, command
        text = "".join(source.read_text() for source in sources)
        known = {f"--{name}" for name in re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', text)}
        known |= set(re.findall(r'strcmp\(argv\[\w+\], "(--[a-z-]+)"\)', text)) | {"--help"}
        told = set(re.findall(r"^  (--[a-z-]+)", help_text, re.MULTILINE))
        assert told == known, (command, told ^ known)
        letters = set(re.findall(r"([a-zA-Z]):", "".join(re.findall(r'getopt_long\(argc, argv, ":([a-zA-Z:]*)"', text))))
        assert set(re.findall(r"^  -([a-zA-Z]) ", help_text, re.MULTILINE)) == letters, (command, letters)
    version = shunt("--version").stdout.split()[1]
    numbers = re.findall(r"^#define SHUNT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", pathlib.Path(
        SOURCE, "include/shunt.h").read_text(), re.MULTILINE)
    assert version == ".".join(numbers), (version, numbers)
    assert f'"shunt {version}"' in pathlib.Path(SOURCE, "docs/shunt.1").read_text()
    assert re.search(rf"^## {re.escape(version)}\b", pathlib.Path(SOURCE, "CHANGELOG.md").read_text(), re.MULTILINE), version
    lines = shunt("info").stdout.splitlines()
    assert lines[0].startswith(f"Shunt: {version}, ") and lines[1].startswith("NCCL: "), lines[:2]


def bench_right():
    small = ("-n", "2", "-w", "1", "--rounds", "1")
    for arguments in (
        ("-g", "4", "-b", "2", "-e", "64K", "-f", "32"),
        ("-g", "3", "-b", "8", "-e", "4K", "-f", "512", "-d", "all", "-o", "all"),
        ("-g", "8", "-b", "1K", "-e", "1K", "-d", "f8e5m2", "-o", "all"),
        ("-g", "2", "-b", "5M", "-e", "5M", "-d", "double"),
        ("-g", "1", "-b", "1K", "-e", "1K"),
        ("-g", "2", "-b", "1K", "-e", "16K", "-f", "16", "-d", "int8", "-o", "avg", "--in-place"),
        ("-g", "2", "-b", "8", "-e", "32K", "-f", "64", "-d", "all", "--skew"),
        ("-g", "2", "-b", "1K", "-e", "32K", "-f", "32", "--in-place", "--skew"),
    ):
        done = expect(shunt("bench", *arguments, *small), 0)
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        assert rows and all(row[8] == "0" for row in rows), done.stdout
        bounds, mean = done.stdout.splitlines()[-2:]
        assert bounds == "# Out of bounds values : 0 OK", done.stdout
        sums = sum(float(row[7]) for row in rows) / len(rows)
        assert abs(float(mean.split("# Avg bus bandwidth    : ")[1]) - sums) < 0.002, done.stdout
    done = expect(shunt("bench", "-g", "2", "-e", "1K", "--check", "0", *small), 0)
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert rows[-1][8] == "-" and "Out of bounds" not in done.stdout, done.stdout


def bench_nccl_tests():
    """The usual command lines of nccl-tests, here with small sizes and few calls, work or give one line on the
    difference."""
    few = ("-n", "2", "-w", "0", "--rounds", "1")

    def rows_of(*line):
        done = expect(shunt("bench", *line), 0)
        names = re.search(r"^# +((?:place +)?bytes .*)$", done.stdout, re.MULTILINE).group(1).split()
        return [dict(zip(names, row.split())) for row in done.stdout.splitlines() if row[0] != "#"]

    sizes = [int(row["bytes"]) for row in rows_of("-b", "8", "-e", "128K", "-f", "2", "-g", "8", *few)]
    assert sizes == [8 << i for i in range(15)], sizes
    (row,) = rows_of("-b", "4M", "-e", "4M", "-n", "20", "-c", "0", "-g", "2", "-w", "0", "--rounds", "1")
    assert row["wrong"] == "-", row
    rows = rows_of("-d", "all", "-o", "all", "-b", "1K", "-e", "1K", "-g", "2", *few)
    assert len({(row["type"], row["op"]) for row in rows}) == len(rows) == 12 * 6, rows
    done = expect(shunt("bench", "-z", "1", "-G", "10"), 2, "(-G) needs a GPU")
    assert len(done.stderr.splitlines()) == 1, done
    # -t gives processes, -i adds steps, -m groups calls, and -z waits for each.
    rows = rows_of("-t", "2", "-b", "8", "-e", "24", "-i", "8", "-m", "16", "-z", "1", "-p", "1", "-a", "3", *few)
    assert [row["bytes"] for row in rows] == ["8", "16", "24"] and all(row["wrong"] == "0" for row in rows), rows
    # Both places are measured if a collective has both; the file's columns are the usual ones.
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/rows.csv"
        for name, places in (("allreduce", ["out", "in"]), ("alltoall", ["out"])):
            rows = rows_of("--place", "both", "--collective", name, "-b", "1K", "-e", "1K", "-g", "2", "-F", file, *few)
            facts, kept = csv_rows(file)
            assert [row["place"] for row in rows] == [row["place"] for row in kept] == places, (rows, kept)
            assert all(row["wrong"] == "0" for row in kept), kept
            assert list(kept[0])[:4] == ["ranks", "mode", "place", "bytes"] and len(kept[0]) == 15, kept
            assert kept[0]["ratio"] == "" and "ratio needs GPUs" in facts["no_ratio"], facts
    rows_of("--minbytes", "1K", "--maxbytes", "1K", "--iters", "2", "--warmup_iters", "0", "--ngpus", "2", "--op", "mulsum",
            "--datatype", "float", "--stepfactor", "2", "--agg_iters", "1", "--blocking", "0", "--cudagraph", "0")
    # A size at which nothing can be measured is reported.
    small = ("--collective", "allgather", "-d", "float", "-g", "4", "-f", "2", *few)
    done = expect(shunt("bench", "-b", "4", "-e", "16", *small), 0, "# not_measured: allgather of float below 16 bytes\n")
    assert len([line for line in done.stdout.splitlines() if line[0] != "#"]) == 1, done
    expect(shunt("bench", "-b", "4", "-e", "8", *small), 0, "allgather of float: no size has an element for every rank\n")


def bench_collectives():
    """Every collective with algorithms here is right, in place and out of place, at every root."""
    known = [line.split(",")[0] for line in shunt("info").stdout.splitlines() if line.endswith(", host-4:")]
    assert "allreduce" in known, known
    small = ("-n", "3", "-w", "1", "--rounds", "1")
    kinds = (("-g", "3", "-b", "24", "-e", "24K", "-f", "32", "-d", "all"),
             ("-g", "4", "-b", "2M", "-e", "2M", "--root", "rotate"),
             ("-g", "2", "-b", "8", "-e", "32K", "-f", "64", "-d", "float", "--skew", "--root", "1"),
             ("-g", "4", "-b", "4K", "-e", "4K", "--in-place", "--root", "3"),
             ("-g", "1", "-b", "1K", "-e", "1K"))
    for name in known:
        for arguments in kinds:
            if name in ("alltoall", "sendrecv") and "--in-place" in arguments:
                continue
            done = expect(shunt("bench", "--collective", name, *arguments, *small), 0)
            rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
            assert rows and all(row[8] == "0" and row[-1] == name for row in rows), done.stdout
    done = expect(shunt("bench", "--collective", "alltoall", "--messages", "-g", "3", "-b", "3K", "-e", "3K", *small), 0)
    assert "pairs" in done.stdout, done.stdout
    for name in ("allgather", "reducescatter"):
        done = expect(shunt("bench", "--collective", name, "--roots", "-g", "3", "-b", "3K", "-e", "3K", *small), 0)


def csv_rows(path):
    """The header's facts, and the rows."""
    lines = pathlib.Path(path).read_text().splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("#"))
    return facts, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def bench_choose():
    """The time of the choice is measured at each size; its value depends on the machine and is not checked."""
    with tempfile.TemporaryDirectory() as folder:
        expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "1M", "-n", "2", "--choose", "--csv", f"{folder}/rows.csv"), 0,
               "choice_ns")
        rows = csv_rows(f"{folder}/rows.csv")[1]
        assert len(rows) > 1 and all(float(row["choice_ns"]) > 0 for row in rows), rows


def on_terminal(*arguments, columns=80, term="xterm", interrupt=None):
    """The command's output on stderr, if that is a terminal whose window has this many columns. With `interrupt`
    the command gets ^C when the output matches that."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        print(f"SKIP: no terminal to try it with: {error}")
        sys.exit(77)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = dict(os.environ, SHUNT_TIMEOUT_MS="600000", SHUNT_CACHE_DIR="/nowhere", TERM=term)

    def begin():  # makes this the terminal of a new session, so that ^C reaches all its processes
        os.setsid()
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    with tempfile.TemporaryFile() as out:
        parent = subprocess.Popen([SHUNT, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=theirs,
                                  preexec_fn=begin)
        os.close(theirs)
        text, typed = b"", False
        try:
            while part := os.read(ours, 4096):
                text += part
                if interrupt and not typed and re.search(interrupt, text):
                    os.write(ours, b"\x03")
                    typed = True
        except OSError:  # the other end is closed
            pass
        status = parent.wait(timeout=LIMIT)
        out.seek(0)
        if interrupt:
            return text.decode(), status, out.read().decode()
    assert status == 0, text
    return text.decode()


def progress():
    """On a terminal a bar with an estimate is shown within the window, and removed at the end; elsewhere
    nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (("bench", "-g", "2", "-b", "1K", "-e", "16K", "-f", "2"),
                          ("tune", "-g", "2", "-b", "1K", "-e", "4K", "--collective", "allreduce", "--table",
                           f"{folder}/table.csv")):
            text = on_terminal(*arguments)
            assert "s left" in text and "%" in text and text.endswith("\r\033[K"), text
            assert expect(shunt(*arguments), 0).stderr == ""
    arguments = ("bench", "-g", "2", "-b", "1K", "-e", "4K", "-n", "2", "-w", "0", "--rounds", "1")
    for columns in (40, 24, 8):
        lines = re.split("[\r\n]", on_terminal(*arguments, columns=columns).replace("\033[K", ""))
        assert max(map(len, lines)) < columns and any("%" in line for line in lines), lines
    assert on_terminal(*arguments, term="dumb") == ""


def interrupted():
    """The bar moves within a measurement; after ^C no bar remains, no error is printed, and the measured rows
    are complete."""
    long = ("bench", "-g", "2", "-b", "4M", "-e", "4M", "-n", "10", "-w", "0", "--check", "0")
    parts = [int(part) for part in re.findall(r"(\d+)%", on_terminal(*long, "--rounds", "21"))]
    assert len({part for part in parts if 0 < part < 100}) >= 3 and parts == sorted(parts), parts
    endless = (*long[:3], "-b", "1K", "-e", "4M", "-f", "4096", "-n", "20", "--rounds", "101", "--check", "0")
    text, status, out = on_terminal(*endless, "--json", "-", interrupt=rb"allreduce\r\n(?s:.*)%")
    assert status == -signal.SIGINT and text.endswith("\r\033[K# Avg bus bandwidth    : " + text.split(": ")[-1]), (text, status)
    assert "died" not in text and "rank" not in text.split("bandwidths in GB/s")[1], text
    assert [row["bytes"] for row in json.loads(out)["rows"]] == [1024] and not json.loads(out)["complete"], out
    with tempfile.TemporaryDirectory() as folder:
        tune = ("tune", "-g", "2", "-b", "1K", "-e", "1M", "--table", f"{folder}/table.csv")
        text, status, out = on_terminal(*tune, interrupt=rb"[1-9]%")
        assert status == 0 and re.search(r"\r\033\[K(\^C)?shunt tune: interrupted after [^\r\n]*\r\n$", text), (text, status)
        assert "# table:" in out, out


def bench_files():
    with tempfile.TemporaryDirectory() as folder:
        table, tree = f"{folder}/rows.csv", f"{folder}/rows.json"
        expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "4K", "-f", "2", "-n", "3", "-d", "float", "-o", "max",
                     "--csv", table, "--json", tree, NCCL_NVLS_ENABLE="0"), 0)
        facts, rows = csv_rows(table)
        assert facts["multicast"] == "NCCL_NVLS_ENABLE=0", facts
        assert facts["command"].startswith("shunt bench -g 2 -b 1K") and "CPU device" in facts["hardware"], facts
        assert [row["bytes"] for row in rows] == ["1024", "2048", "4096"], rows
        for row in rows:
            us, bytes_, busbw = float(row["us"]), int(row["bytes"]), float(row["busbw"])
            assert us > 0 and abs(busbw - bytes_ / us * 1e-3) <= 0.001 + 0.01 * busbw, row  # 2(n-1)/n is 1 here
            assert (row["type"], row["op"], row["wrong"], row["ranks"]) == ("float", "max", "0", "2"), row
            assert row["collective"] == "allreduce", row
        whole = json.loads(pathlib.Path(tree).read_text())
        assert [row["bytes"] for row in whole["rows"]] == [1024, 2048, 4096], whole
        assert whole["rows"][0]["nccl_us"] is None and whole["command"] == facts["command"], whole
        assert [whole[name] for name in ("driver", "cuda", "nccl", "floor", "not_measured")] == [None] * 5, whole
        assert whole["complete"] and whole["multicast"] == facts["multicast"], whole
        usual = ("bench", "-g", "2", "-b", "1K", "-e", "2K", "-f", "2", "-n", "3", "-c", "1", "-G", "0")
        done = expect(shunt(*usual, "--csv", "-"), 0)
        lines = [line for line in done.stdout.splitlines() if line[0] != "#"]
        assert len(lines) == 3 and all(line.count(",") == 14 for line in lines), done
        assert "Avg bus bandwidth" in done.stderr, done
        done = expect(shunt(*usual, "--json", "-"), 0)
        assert [row["bytes"] for row in json.loads(done.stdout)["rows"]] == [1024, 2048], done
        interrupted_json(f"{folder}/part.json")
    for arguments in ((), ("--csv", "/dev/full")):  # a row that cannot be written is a fault, also on stdout
        with open("/dev/full" if not arguments else os.devnull, "wb") as out:
            done = subprocess.run([SHUNT, "bench", "-g", "2", "-b", "1K", "-e", "1K", "-n", "1", *arguments], stdout=out,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        assert done.returncode == 1 and "could not be written whole" in done.stderr, (arguments, done)


def interrupted_json(path):
    """An interrupted run leaves valid JSON with the rows so far."""
    parent = subprocess.Popen([SHUNT, "bench", "-g", "2", "-b", "1K", "-e", "16M", "-f", "2", "-n", "100", "--json", path],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        text = pathlib.Path(path).read_text() if os.path.exists(path) else ""
        if text.count('"bytes"') >= 2:
            break
        time.sleep(0.05)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=LIMIT) != 0
    part = json.loads(pathlib.Path(path).read_text())
    assert [row["bytes"] for row in part["rows"][:2]] == [1024, 2048] and not part["complete"], part


def trace():
    """Every call of a run is an event in the Trace Event Format, in one file per process."""
    with tempfile.TemporaryDirectory() as folder:
        expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "4K", "-f", "2", "-n", "3", "-w", "0", "--rounds", "1",
                     "-d", "float", "-o", "max", SHUNT_TRACE=f"{folder}/%h.%p.json"), 0)
        files = sorted(pathlib.Path(folder).iterdir())
        assert len(files) == 2, files
        ranks = set()
        for path in files:
            events = json.loads(path.read_text())
            pid = int(path.name.split(".")[-2])
            assert all(event["pid"] == pid and "name" in event for event in events), events
            assert events[0]["ph"] == "M" and events[0]["name"] == "process_name", events[0]
            assert events[1]["ph"] == "i" and events[1]["args"]["realtime_ns"] > 0, events[1]
            calls = [event for event in events if event["ph"] == "X" and event["name"].startswith("ncclAllReduce ")]
            assert sorted({call["args"]["bytes"] for call in calls}) == [1024, 2048, 4096], calls
            end = events[1]["ts"]
            for call in calls:
                args = call["args"]
                assert call["ts"] >= end and call["dur"] > 0 and call["tid"] > 0, call  # a thread's calls do not overlap
                assert abs(call["dur"] * 1000 - args["host_ns"]) < 1, call
                end = call["ts"] + call["dur"] - 0.001
                assert (args["type"], args["op"], args["captured"], args["route"]) == ("float32", "max", False, "shunt"), call
                assert args["bytes"] == 4 * args["count"] and args["nranks"] == 2 and args["blocks"] > 0, call
                assert args["algorithm"] in call["name"] and args["reason"] and args["result"] == 0, call
                assert int(args["comm"], 16) != 0 and int(args["stream"], 16) >= 0, call
                ranks.add(args["rank"])
        assert ranks == {0, 1}, ranks


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def bench_dies():
    """A killed rank ends the whole run with a message and leaves no process."""
    parent = subprocess.Popen([SHUNT, "bench", "-g", "3", "-n", "100000", "--rounds", "101", "-b", "64K", "-e", "64K"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + LIMIT
    while len(ranks := children(parent.pid)) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    os.kill(ranks[1], signal.SIGKILL)
    error = parent.communicate(timeout=LIMIT)[1]
    assert parent.returncode == 1 and "rank" in error, (parent.returncode, error)
    assert not any(os.path.exists(f"/proc/{rank}") for rank in ranks), ranks


def bench_launched():
    """Ranks that a launcher starts, here on two nodes with two each: rank 0 reports, and the others print
    nothing. Each launcher names the ranks by its own variables."""
    launchers = [("RANK", "WORLD_SIZE", "LOCAL_RANK"),
                 ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
                 ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1] - 1
    for names in launchers:
        ranks = []
        for rank in range(4):
            env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank // 2}",
                       NCCL_SOCKET_IFNAME="lo", SHUNT_SCRATCH_BYTES="4M", **dict(zip(names, (str(rank), "4", str(rank % 2)))))
            ranks.append(subprocess.Popen([SHUNT, "bench", "--launched", "-b", "1K", "-e", "256K", "-f", "16", "-n", "3",
                                           "-w", "1", "--rounds", "1"],
                                          env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        done = [rank.communicate(timeout=LIMIT) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * 4, done
        assert re.search(r"^ *262144 .* exchange ", done[0][0], re.M), done[0][0]
        assert all(out == "" for out, _ in done[1:]), done


def call_bench(port, hello=b"", user=None):
    """Call rank 0's port from a separate process; returns what it receives until the connection ends."""
    script = ("import os, socket, sys, time\n"
              "user, port, hello = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])\n"
              "if user: os.setuid(user)\n"
              "while True:\n"
              "    s = socket.socket()\n"
              "    try: s.connect(('127.0.0.1', port)); break\n"
              "    except OSError: time.sleep(0.01)\n"
              "s.sendall(hello)\n"
              "print('called', flush=True)\n"
              "heard = b''\n"
              "try:\n"
              "    while part := s.recv(4096): heard += part\n"
              "except OSError: pass\n"
              "print(len(heard))\n")
    return subprocess.Popen([sys.executable, "-c", script, str(user or 0), str(port), hello.hex()], text=True,
                            stdout=subprocess.PIPE)


def bench_strangers():
    """Silent callers delay no rank; a caller that knows the protocol, but is another user or lacks the secret,
    is refused. A refused rank prints what it needs."""
    magic = 0x68636E65622D7374
    with tempfile.TemporaryDirectory() as folder:
        secrets = []
        for name in "right", "wrong":
            secrets.append(f"{folder}/{name}")
            with open(os.open(secrets[-1], os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(os.urandom(32))
        if os.geteuid() != 0:
            print("skipped: a caller of another user needs root")
            sys.exit(77)
        for options, status, user in (((), 0, 54321), (("--secret", secrets[0]), 0, None), (("--secret", secrets[1]), 1, None)):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]

            def start(rank, options):
                env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port - 1), RANK=str(rank),
                           WORLD_SIZE="2", LOCAL_RANK=str(rank), SHUNT_SCRATCH_BYTES="4M")
                return subprocess.Popen([SHUNT, "bench", "--launched", *options, "-b", "1K", "-e", "1K", "-n", "3", "-w",
                                         "1", "--rounds", "1"], env=env, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

            first = start(0, ("--secret", secrets[0]) if options else ())
            callers = [call_bench(port) for _ in range(3)] + [call_bench(port, struct.pack("<QII64s", magic, 1, 2, b""),
                                                                         user)]
            for caller in callers:
                assert caller.stdout.readline() == "called\n"
            second = start(1, options)
            out, err = second.communicate(timeout=LIMIT)
            assert second.returncode == status and ("--secret FILE" in err) == (status != 0), (out, err)
            if status != 0:
                first.kill()
            words = first.communicate(timeout=LIMIT)
            assert status != 0 or first.returncode == 0, words
            heard = [caller.stdout.read() for caller in callers]
            assert heard == ["0\n"] * len(callers), heard
            assert all(caller.wait(timeout=LIMIT) == 0 for caller in callers)
        os.chmod(secrets[0], 0o644)
        done = start(1, ("--secret", secrets[0]))
        assert "you alone may read" in done.communicate(timeout=LIMIT)[1] and done.returncode == 2


def bench_gpu():
    """`shunt bench` on GPUs, with NCCL: eager, in place, captured; every type and operator."""
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True) if shutil.which(
        "nvidia-smi") else None
    gpus = sum(line.startswith("GPU") for line in listed.stdout.splitlines()) if listed else 0
    if gpus == 0:
        print("skipped: no GPU here")
        sys.exit(77)
    small = ("-n", "3", "-w", "1", "--rounds", "2")
    for arguments in (
        ("-b", "2", "-e", "4M", "-f", "32"),
        ("-b", "64", "-e", "64K", "-f", "32", "--in-place"),
        ("-b", "64", "-e", "64K", "-f", "32", "--in-place", "--graph"),
        ("-b", "24", "-e", "24K", "-f", "1000", "--graph", "-d", "all", "-o", "all"),
        ("--collective", "all", "-b", "64", "-e", "64M", "-f", "32"),
        ("--collective", "all", "-b", "64", "-e", "4M", "-f", "32", "--graph", "--root", "rotate"),
        ("--collective", "all", "-b", "64", "-e", "4M", "-f", "32", "--in-place", "--root", "1"),
        ("--collective", "all", "-b", "64", "-e", "64K", "-f", "32", "--skew", "-d", "all", "-o", "all"),
    ):
        done = expect(shunt("bench", *arguments, *small), 0)
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        assert rows and all(row[8] == "0" and float(row[9]) > 0 for row in rows), done.stdout
        assert gpus not in (2, 4) or any(row[4] != "nccl" for row in rows), done.stdout  # Shunt has built-in rows for these
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (("--graph", "--floor"), ("--floor", "--host-time")):
            expect(shunt("bench", "-b", "1K", "-e", "64K", "-f", "64", *arguments, "--csv", f"{folder}/rows.csv"), 0)
            for row in csv_rows(f"{folder}/rows.csv")[1]:
                assert float(row["floor_us"]) > 0.5 and float(row["floor_ratio"]) > 0.9, row  # no time is below the floor
                if "call_ns" in row:
                    assert float(row["call_ns"]) > 0 and float(row["sync_us"]) > float(row["launch_us"]) > 0, row
        for arguments in ((), ("--graph",)):
            expect(shunt("bench", "-b", "1M", "-e", "16M", "-f", "16", "--beside", *arguments, "--csv",
                         f"{folder}/rows.csv"), 0)
            for row in csv_rows(f"{folder}/rows.csv")[1]:
                assert int(row["beside_calls"]) >= 2 and 0 < float(row["products_ms"]) < float(row["beside_ms"]) * 1.1, row


if __name__ == "__main__":
    {case.__name__: case for case in (usage, lost_output, watch_json, names, run, info, info_json, topology, settings,
                                      documents, manual, completions, completions_zsh, completions_fish, options, bench_right,
                                      bench_collectives, bench_files, bench_dies, bench_launched, bench_strangers,
                                      bench_choose, bench_nccl_tests, progress, interrupted, bench_gpu, trace)}[sys.argv[4]]()
