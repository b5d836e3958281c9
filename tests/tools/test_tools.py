#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_tools.py - the command `shunt`, run as a user would run it.

usage: test_tools.py SHUNT PRELOADABLE_LIBRARY SOURCE_FOLDER CASE

On the host device. Exit status 0: the case passed; a failed assertion shows
what was expected and what came.
"""

import csv
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

SHUNT, PRELOADABLE, SOURCE = sys.argv[1:4]
LIMIT = 800  # seconds, against hanging alone: a sanitizer's build on a busy machine is slow


def shunt(*arguments, **variables):
    # A machine may be so busy that ranks take longer to meet than the default allows.
    # No table of whoever runs this.
    environment = dict(os.environ, SHUNT_TIMEOUT_MS="600000", SHUNT_CACHE_DIR="/nowhere")
    environment.update(variables)
    return subprocess.run([SHUNT, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=LIMIT)


def expect(done, status, *words):
    """The exit status, and words on stderr (or, on success, stdout)."""
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
        (("bench", "-b"), "-b"),
        (("bench", "-b", "12X"), "12X"),
        (("bench", "-b", "0"), "-b 0"),
        (("bench", "-e", "99999999999999999999"), "-e"),
        (("bench", "-e", "-1"), "-e -1"),
        (("bench", "-f", "1"), "-f 1"),
        (("bench", "-g", "9"), "-g 9"),
        (("bench", "-n", "0"), "-n 0"),
        (("bench", "-d", "int7"), "int7"),
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
        (("run",), "no command"),
        (("run", "-x"), "-x"),
        (("info", "x"), "x"),
        (("settings", "--html"), "--html"),
    ):
        expect(shunt(*arguments), 2, word)
    for command in ("bench", "tune", "run", "doctor", "info", "settings"):
        expect(shunt(command, "--help"), 0, f"usage: shunt {command}")
    expect(shunt("--help"), 0, "usage: shunt")
    expect(shunt("--version"), 0, "shunt ")
    expect(shunt("bench", "--csv", "/nowhere/file.csv"), 1, "/nowhere/file.csv")
    for command in ("bench", "info", "settings"):
        expect(shunt(command, SHUNT_LIB="/nowhere/libnccl.so.2"), 1, "/nowhere/libnccl.so.2")


def run():
    show = "import os; print(*(os.environ.get(n, '') for n in ('LD_PRELOAD', 'VLLM_NCCL_SO_PATH', 'SGLANG_NCCL_SO_PATH')))"
    folder = tempfile.TemporaryDirectory()
    library = shutil.copy(PRELOADABLE, os.path.realpath(folder.name))  # the build folder's name may have blanks
    environment = {"SHUNT_LIB": library}
    done = expect(shunt("run", "--", sys.executable, "-c", show, **environment), 0)
    assert done.stdout.split() == [library] * 3, done.stdout
    # In front of what is preloaded already, and without the dashes. (An address sanitizer's run time wants to
    # be the first library of a process.)
    done = expect(shunt("run", sys.executable, "-c", show, LD_PRELOAD=library,
                        ASAN_OPTIONS="verify_asan_link_order=0", **environment), 0)
    assert done.stdout.split()[0] == f"{library}:{library}", done.stdout
    # The program's status is ours; arguments arrive as they are.
    expect(shunt("run", "--", "sh", "-c", "exit 7", **environment), 7)
    assert shunt("run", "--", "printf", "%s", "a  b", **environment).stdout == "a  b"
    expect(shunt("run", "--", "/nowhere/program", **environment), 127, "/nowhere/program")
    # LD_PRELOAD has no way to write a blank.
    blank = shutil.copy(library, os.path.join(folder.name, "a b.so"))
    expect(shunt("run", "true", SHUNT_LIB=blank), 1, "blank")
    folder.cleanup()


def info():
    expect(shunt("info"), 0, "Shunt:", "Device: host", "NCCL:", "Settings:", "SHUNT_DEVICE=host  (environment)",
           "allreduce, ")


def topology():
    machines = pathlib.Path(SOURCE, "tests/topology/machines")
    expect(shunt("info", "--topology"), 0, "GPUs:", "NICs:", "allreduce, host-4:")
    expect(shunt("info", "--topology", machines / "nvswitch-8-nics-8.xml"), 0, "nvswitch-sm90-8", "NVS18", "mlx5_7",
           "allreduce, nvswitch-sm90-8:")
    # What is written is read again as the same machine.
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump.xml")
        first = expect(shunt("info", "--topology", machines / "cube-8.xml", "--dump", dump), 0, "bridges-sm70-8")
        assert first.stdout == expect(shunt("info", "--topology", dump), 0).stdout
        pathlib.Path(dump).write_text('<system version="1">\n  <cpu numaid="x"/>\n</system>\n')
        expect(shunt("info", "--topology", dump), 1, "dump.xml:2:16: expected numaid")
        # NCCL's own variable: where devices hang is taken from that file, and a malformed one is passed over.
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
    """What scripts/update-docs generates is as it would be now."""
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/update-docs", "--check", SHUNT], capture_output=True,
                          text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{done.stderr}run scripts/update-docs"
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-z", f"{SOURCE}/docs/shunt.1"], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=LIMIT)
        assert done.returncode == 0 and not done.stderr, done.stderr


def options():
    """Every option that a command knows is in its help, and the other way round; the version is one."""
    for command in re.findall(r"^  (\w+) ", shunt("--help").stdout, re.MULTILINE):
        help_text = expect(shunt(command, "--help"), 0).stdout
        sources = [pathlib.Path(SOURCE, f"tools/{command}{rest}.c") for rest in ("", "_options")]
        text = "".join(source.read_text() for source in sources if source.exists())
        known = {f"--{name}" for name in re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', text)}
        known |= set(re.findall(r'strcmp\(argv\[\w+\], "(--[a-z-]+)"\)', text)) | {"--help"}
        told = set(re.findall(r"^  (--[a-z-]+)", help_text, re.MULTILINE))
        assert told == known, (command, told ^ known)
        letters = set(re.findall(r"([a-z]):", "".join(re.findall(r'getopt_long\(argc, argv, ":([a-z:]*)"', text))))
        assert set(re.findall(r"^  -([a-z]) ", help_text, re.MULTILINE)) == letters, (command, letters)
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
    done = expect(shunt("bench", "-g", "2", "-e", "1K", "--check", "0", *small), 0)
    assert done.stdout.splitlines()[-1].split()[8] == "-", done.stdout


def bench_collectives():
    """Every collective whose algorithms are here: right, in place and not, at every root."""
    known = [line.split(",")[0] for line in shunt("info").stdout.splitlines() if line.endswith(", host-4:")]
    assert "allreduce" in known, known
    small = ("-n", "3", "-w", "1", "--rounds", "1")
    kinds = (("-g", "3", "-b", "24", "-e", "24K", "-f", "32", "-d", "all"),
             ("-g", "4", "-b", "2M", "-e", "2M", "--root", "rotate"),
             ("-g", "2", "-b", "8", "-e", "32K", "-f", "64", "-d", "float", "--skew", "--root", "1"),
             ("-g", "4", "-b", "4K", "-e", "4K", "--in-place", "--root", "3"),
             ("-g", "1", "-b", "1K", "-e", "1K"))
    parts = int(os.environ.get("TEST_PARTS", "1"))  # under a sanitizer each collective has a part of them
    for at, name in enumerate(known):
        for turn, arguments in enumerate(kinds):
            if (at + turn) % parts:
                continue
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
    """The facts of the head, and the rows."""
    lines = pathlib.Path(path).read_text().splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("#"))
    return facts, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def bench_choose():
    """The time of the choice is measured at each size. How long it is depends on the machine, so it decides nothing."""
    with tempfile.TemporaryDirectory() as folder:
        expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "1M", "-n", "2", "--choose", "--csv", f"{folder}/rows.csv"), 0,
               "choice_ns")
        rows = csv_rows(f"{folder}/rows.csv")[1]
        assert len(rows) > 1 and all(float(row["choice_ns"]) > 0 for row in rows), rows


def on_terminal(*arguments):
    """What a command prints on stderr, if that is a terminal."""
    ours, theirs = pty.openpty()
    environment = dict(os.environ, SHUNT_TIMEOUT_MS="600000", SHUNT_CACHE_DIR="/nowhere")
    parent = subprocess.Popen([SHUNT, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:  # the other end is closed
        pass
    assert parent.wait(timeout=LIMIT) == 0, text
    return text.decode()


def progress():
    """A bar with an estimate on a terminal, taken away at the end; not a word in a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (("bench", "-g", "2", "-b", "1K", "-e", "16K", "-f", "2"),
                          ("tune", "-g", "2", "-b", "1K", "-e", "4K", "--collective", "allreduce", "--table",
                           f"{folder}/table.csv")):
            text = on_terminal(*arguments)
            assert "s left" in text and "%" in text and text.endswith("\r\033[K"), text
            assert expect(shunt(*arguments), 0).stderr == ""


def bench_files():
    with tempfile.TemporaryDirectory() as folder:
        table, tree = f"{folder}/rows.csv", f"{folder}/rows.json"
        expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "4K", "-f", "2", "-n", "3", "-d", "float", "-o", "max",
                     "--csv", table, "--json", tree), 0)
        facts, rows = csv_rows(table)
        assert facts["command"].startswith("shunt bench -g 2 -b 1K") and "host device" in facts["hardware"], facts
        assert [row["bytes"] for row in rows] == ["1024", "2048", "4096"], rows
        for row in rows:
            us, bytes_, busbw = float(row["us"]), int(row["bytes"]), float(row["busbw"])
            assert us > 0 and abs(busbw - bytes_ / us * 1e-3) <= 0.001 + 0.01 * busbw, row  # 2(n-1)/n is 1 here
            assert (row["type"], row["op"], row["wrong"], row["ranks"]) == ("float", "max", "0", "2"), row
            assert row["collective"] == "allreduce", row
        whole = json.loads(pathlib.Path(tree).read_text())
        assert [row["bytes"] for row in whole["rows"]] == [1024, 2048, 4096], whole
        assert whole["rows"][0]["nccl_us"] is None and whole["command"] == facts["command"], whole


def plot(*arguments):
    return subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/plot", *arguments], capture_output=True, text=True,
                          timeout=LIMIT)


def plot_file(folder, name, rows, columns="ranks,mode,place,bytes,count,type,op,algorithm,us,nccl_us,floor_us"):
    path = pathlib.Path(folder, name)
    path.write_text("\n".join(["# hardware: 4 x <GPU> & Co", columns, *rows]) + "\n")
    return str(path)


def curves(picture):
    """The points of each line of the picture, panel by panel."""
    found = {}
    for line in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        found.setdefault(line.get("class"), []).append(points)
    return found


def plots():
    """Lines go where the numbers are; the same files give the same picture; what cannot be joined is told."""
    with tempfile.TemporaryDirectory() as folder:
        first = plot_file(folder, "a.csv", ["4,graph,out,1024,512,bfloat16,sum,oneshot,2,8,1.9",
                                            "4,graph,out,65536,512,bfloat16,sum,oneshot,4,8,2.5"])
        second = plot_file(folder, "b.csv", ["4,graph,out,65536,512,bfloat16,sum,oneshot,4,16,2.5",
                                             "4,graph,out,1048576,512,bfloat16,sum,nccl,16,16,"])
        one, two = f"{folder}/one.svg", f"{folder}/two.svg"
        for picture in (one, two):
            done = plot(first, second, "-o", picture)
            assert done.returncode == 0, done.stderr
        assert pathlib.Path(one).read_bytes() == pathlib.Path(two).read_bytes()
        lines = curves(one)
        assert sorted(lines) == ["NCCL", "Shunt", "floor"] and all(len(panels) == 2 for panels in lines.values()), lines
        (times, rates), (nccl_times, _) = lines["Shunt"], lines["NCCL"]
        assert len(times) == 3 and len(lines["floor"][0]) == 2, lines
        assert times[0][1] > times[1][1] > times[2][1] and rates[0][1] > rates[1][1] > rates[2][1], times  # y grows down
        assert times[2] == nccl_times[2] and times[1][0] == nccl_times[1][0] and nccl_times[1] != times[1], lines
        # Logarithmic: 2 to 4 is as far as 8 to 16; and equal steps of the size are equal steps to the right.
        assert abs((times[0][1] - times[1][1]) - (nccl_times[0][1] - nccl_times[1][1])) < 0.2, lines
        assert abs((times[1][0] - times[0][0]) / (times[2][0] - times[1][0]) - 6 / 4) < 0.01, times

        # By collective: its name, and the factor of its bus bandwidth; files without the column are all-reduces.
        columns = "ranks,mode,place,bytes,count,type,op,algorithm,us,nccl_us,ratio,collective"
        titles = {"broadcast": "Broadcast, int8, out of place, 4 ranks", "reduce": "Reduce, int8 sum",
                  "allgather": "All-gather, int8,"}
        for name, title in titles.items():
            op = "sum" if name == "reduce" else "none"
            table = plot_file(folder, f"{name}.csv", [f"4,graph,out,1000,1000,int8,{op},push,1,2,2,{name}"], columns)
            assert plot(table, "-o", two).returncode == 0
            text = pathlib.Path(two).read_text()
            assert title in text and ("Shunt 0.75" if name == "allgather" else "Shunt 1<") in text, text
            assert plot(first, table, "--collective", name, "-o", two).returncode == 0
            assert pathlib.Path(two).read_text() == text
            done = plot(first, table, "-o", two)
            assert done.returncode == 1 and "rows of several kinds: " in done.stderr, done.stderr

        eager = plot_file(folder, "c.csv", ["4,eager,out,1024,512,bfloat16,sum,oneshot,2,8,1.9"])
        assert plot(eager, "-o", one).returncode == 0  # a single point
        for files, word in (((first, eager), "eager"), ((plot_file(folder, "d.csv", []),), "no rows"),
                            ((plot_file(folder, "e.csv", ["1"], "x"),), "e.csv"), (("/nowhere.csv",), "/nowhere.csv")):
            done = plot(*files, "-o", two)
            assert done.returncode == 1 and word in done.stderr and "Traceback" not in done.stderr, done.stderr


def plot_sheet():
    """A panel for each collective, on the same axes; what Shunt hands over is shaded."""
    columns = "ranks,mode,place,bytes,count,type,op,algorithm,us,nccl_us,ratio,collective"
    rows = ["4,graph,out,1024,512,bfloat16,none,push,2,8,4,allgather", "4,graph,out,65536,512,bfloat16,none,nccl,8,8,1,allgather",
            "4,graph,out,1024,512,bfloat16,sum,one,4,8,2,allreduce", "4,graph,out,65536,512,bfloat16,sum,one,8,16,2,allreduce"]
    with tempfile.TemporaryDirectory() as folder:
        table, picture = plot_file(folder, "a.csv", rows, columns), f"{folder}/sheet.svg"
        assert plot("--sheet", table, "-o", picture).returncode == 0
        first = pathlib.Path(picture).read_bytes()
        assert plot("--sheet", table, "-o", picture).returncode == 0 and pathlib.Path(picture).read_bytes() == first
        text = first.decode()
        assert text.index(">All-reduce<") < text.index(">All-gather<") and text.count('class="handed"') == 1, text
        assert "1 KB 2.00x, 64 KB 2.00x" in text and "1 KB 4.00x<" in text, text
        shunt_lines, nccl_lines = (curves(picture)[name] for name in ("Shunt", "NCCL"))
        assert len(shunt_lines) == len(nccl_lines) == 2, text
        # 8 us lie at one height in both panels, which begin at the same size.
        assert shunt_lines[0][1][1] == shunt_lines[1][1][1] == nccl_lines[0][0][1] == nccl_lines[1][0][1], shunt_lines
        assert shunt_lines[1][0][0] - shunt_lines[0][0][0] == 250, shunt_lines
        for more, words in (("4,eager,out,1024,512,bfloat16,sum,one,4,8,2,reduce", "eager"),
                            ("4,graph,out,64,512,bfloat16,max,one,4,8,2,allreduce", "rows of several kinds")):
            other = plot_file(folder, "b.csv", [more], columns)
            done = plot("--sheet", table, other, "-o", picture)
            assert done.returncode == 1 and words in done.stderr, done.stderr
        assert plot("--sheet", plot_file(folder, "c.csv", [], columns), "-o", picture).returncode == 1
        assert plot("--sheet", table, "--collective", "allgather", "-o", picture).returncode == 2


def pictures():
    """Every picture among the results is what its CSV file gives now."""
    names = ("allreduce", "reducescatter", "reduce", "allgather", "alltoall", "broadcast", "gather", "scatter")
    found = [picture for name in names for picture in sorted(pathlib.Path(SOURCE, "docs/results").glob(f"{name}-*.svg"))]
    assert found
    with tempfile.TemporaryDirectory() as folder:
        for picture in found:
            name, rest = picture.stem.split("-", 1)
            table = picture.with_name(("graph-" if name == "allreduce" else "collectives-") + rest + ".csv")
            done = plot(str(table), "--collective", name, "-o", f"{folder}/now.svg")
            assert done.returncode == 0, done.stderr
            assert pathlib.Path(folder, "now.svg").read_bytes() == picture.read_bytes(), (
                f"{picture.name} is stale: scripts/plot docs/results/{table.name} -o docs/results/{picture.name}")
        sheets = sorted(pathlib.Path(SOURCE, "docs/results").glob("collectives-*.svg"))
        assert sheets
        for picture in sheets:
            done = plot("--sheet", str(picture.with_suffix(".csv")), "-o", f"{folder}/now.svg")
            assert done.returncode == 0, done.stderr
            assert pathlib.Path(folder, "now.svg").read_bytes() == picture.read_bytes(), f"{picture.name} is stale"


def script_module(name):
    """A script of scripts/ as a module."""
    sys.path.insert(0, f"{SOURCE}/scripts")
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), f"{SOURCE}/scripts/{name}")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def skips_without_gpus(name):
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/{name}"], env=dict(os.environ, PATH="/nowhere"),
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 77 and "SKIP" in done.stdout, (done.returncode, done.stdout, done.stderr)


def decode():
    """scripts/decode-bench: its arithmetic, and that it says why it does nothing where there is no GPU."""
    bench = script_module("decode-bench")
    times = {("nccl", 1): [{"step": step, "exchanges": 640} for step in (5000, 1000, 900)],
             ("shunt", 1): [{"step": 800, "exchanges": 320}],
             ("nccl", 16): [{"step": 1600, "exchanges": 640}], ("shunt", 16): [{"step": 1600, "exchanges": 640}]}
    one, many = bench.rows_of(times, 4, bench.MODELS["dense"])
    assert (one["tokens_s"], one["nccl_tokens_s"], one["gain"]) == ("1250.0", "1000.0", "1.250"), one
    assert (one["predicted_us"], one["gained_us"], one["share"], one["exchange_us"]) == (
        "320.0", "200.0", "0.62", "5.00"), one
    assert (one["bytes"], many["bytes"], many["tokens_s"], many["share"]) == (8192, 131072, "10000.0", ""), many
    assert abs(bench.difference([3.0, 4.0], [3.0, 4.5]) - 0.5 / 29.25 ** 0.5) < 1e-12
    for bad in ([float("nan"), 1.0], [float("inf"), 1.0]):
        assert bench.difference(bad, [1.0, 1.0]) == float("inf") and bench.difference([1.0, 1.0], bad) == float("inf")
    skips_without_gpus("decode-bench")


def train():
    """scripts/train-bench: the slowest rank counts, of the rounds the median; the worst loss of any rank and step."""
    bench = script_module("train-bench")
    found = {(team, mode, n): [[{"ms": ms, "losses": [2.0, 1.0]}, {"ms": 1, "losses": [2.0, last]}] for ms in (50, 10, 20)]
             for mode in bench.MODES for n in bench.SEQUENCES for team, last in (("nccl", 1.0), ("shunt", 1.25))}
    found["shunt", "ddp", 4] = [[{"ms": 10, "losses": [2.0, 1.0]}, {"ms": 1, "losses": [2.0, 1.0]}]] * 3
    rows = list(bench.rows_of(found, 2, 1000))
    assert [row["tokens"] for row in rows] == [2000, 8000, 2000, 8000], rows
    assert (rows[0]["tokens_s"], rows[0]["gain"], rows[0]["worst"]) == ("100000", "1.000", "0.25"), rows[0]
    assert (rows[3]["tokens_s"], rows[3]["gain"], rows[3]["worst"]) == ("800000", "2.000", "0"), rows[3]
    skips_without_gpus("train-bench")


def offenders():
    """Each promise: a row that just keeps it, and one that just breaks it."""
    def run(folder, rows, *options):
        path = plot_file(folder, "rows.csv", rows, "ranks,mode,place,bytes,count,type,op,algorithm,us,wrong,nccl_us")
        return subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", *options, path],
                              capture_output=True, text=True, timeout=LIMIT)

    keep = ["4,graph,out,4096,2048,bfloat16,sum,a,10,0,9.81",
            "4,graph,in,4096,2048,bfloat16,sum,a,10.9,0,",
            "4,graph,out,4096,512,double,max,a,12.4,,12.4",
            "4,graph,out,4096,1024,float,prod,a,12.4,0,",
            "4,graph,out+1,4094,2047,bfloat16,sum,a,14.9,0,15",
            "3,graph,out,4096,2048,bfloat16,avg,a,90,0,",  # nothing to compare with
            "4,eager,out,4096,2048,bfloat16,avg,a,90,0,"]
    broken = {"nccl": "4,graph,out,8192,2048,float,sum,a,10,0,9.79", "wrong": "4,graph,out,64,64,int8,sum,a,1,3,",
              "type": "4,graph,out,4096,1024,float,sum,a,11.1,0,", "skew": "4,graph,out+1,4092,1023,float,prod,a,19,0,"}
    with tempfile.TemporaryDirectory() as folder:
        done = run(folder, keep)
        assert done.returncode == 0 and "nccl 0/3, type 0/3, skew 0/1, wrong 0/6" in done.stdout, done.stdout + done.stderr
        for promise, row in broken.items():
            done = run(folder, [*keep, row])
            lines = done.stdout.splitlines()
            assert done.returncode == 1 and len(lines) == 3 and lines[0].startswith(promise), (promise, done.stdout)
        assert lines[1].split("bench ")[1] == "-g 4 -b 4096 -e 4096 -d float -o prod --rounds 15 --graph --skew", lines
        # By collective: the skewed row's blocks are one element shorter each.
        columns = "ranks,mode,place,bytes,count,type,op,algorithm,us,wrong,nccl_us,ratio,collective"
        path = plot_file(folder, "moved.csv", ["4,graph,out,4096,512,bfloat16,none,push,10,0,9.81,,allgather",
                                               "4,graph,out+1,4088,511,bfloat16,none,push,16,0,16,,allgather"], columns)
        done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", path], capture_output=True,
                              text=True, timeout=LIMIT)
        assert "nccl 0/2, type 0/0, skew 1/1, wrong 0/2" in done.stdout, done.stdout + done.stderr
        assert "-b 4096 -e 4096 -d bfloat16 --rounds 15 --collective allgather --graph --skew" in done.stdout, done.stdout
        table = run(folder, keep, "--table").stdout.splitlines()
        assert table[2] == "| bfloat16 | 1.09, 1.09 | | | | |", table  # the first row's in place; nothing else compares
        assert table[4] == "| float | | | | 1.24, 1.24 | |", table
        assert subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", "/nowhere.csv"],
                              capture_output=True).returncode == 2


def trace():
    """Every call of a run is an event as the Trace Event Format has it; one file a process."""
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
                assert call["ts"] >= end and call["dur"] > 0 and call["tid"] > 0, call  # one thread: one after the other
                assert abs(call["dur"] * 1000 - args["host_ns"]) < 1, call
                end = call["ts"] + call["dur"] - 0.001
                assert (args["type"], args["op"], args["captured"], args["route"]) == ("float32", "max", False, "shunt"), call
                assert args["bytes"] == 4 * args["count"] and args["nranks"] == 2 and args["blocks"] > 0, call
                assert args["algorithm"] in call["name"] and args["reason"] and args["result"] == 0, call
                assert int(args["comm"], 16) != 0 and int(args["stream"], 16) >= 0, call
                ranks.add(args["rank"])
        assert ranks == {0, 1}, ranks


def plot_trace():
    """scripts/plot-trace: a bar a call, in the row of its rank; a trace may lack its end."""
    def call(rank, at, route, count):
        return json.dumps({"ph": "X", "name": f"ncclAllReduce {route}", "ts": at, "dur": 5, "pid": rank, "tid": 0,
                           "args": {"rank": rank, "bytes": count, "algorithm": "oneshot", "route": route}})

    with tempfile.TemporaryDirectory() as folder:
        traces = [pathlib.Path(folder, f"{rank}.json") for rank in range(2)]
        for rank, trace in enumerate(traces):
            trace.write_text("[" + ",\n".join([call(rank, 10, "shunt", 2048), call(rank, 90, "nccl", 64 << 20)]) +
                             (",\n" if rank else "\n]"))
        done = subprocess.run([f"{SOURCE}/scripts/plot-trace", *map(str, traces)], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("<title>ncclAllReduce shunt, 2 KB oneshot, 5.0 us<") == 2, done.stdout
        assert done.stdout.count("<title>ncclAllReduce nccl, 64 MB") == 2 and "rank 1" in done.stdout
        traces[0].write_text("[]")
        done = subprocess.run([f"{SOURCE}/scripts/plot-trace", str(traces[0])], text=True, capture_output=True)
        assert done.returncode == 1 and "no calls" in done.stderr, done.stderr


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def bench_dies():
    """A rank that is killed ends the whole run, with a message, and leaves no process behind."""
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


def bench_gpu():
    """On GPUs, NCCL beside ours: eager, in place, captured; every type and operator."""
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
        assert gpus not in (2, 4) or any(row[4] != "nccl" for row in rows), done.stdout  # there are rows of ours
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (("--graph", "--floor"), ("--floor", "--host-time")):
            expect(shunt("bench", "-b", "1K", "-e", "64K", "-f", "64", *arguments, "--csv", f"{folder}/rows.csv"), 0)
            for row in csv_rows(f"{folder}/rows.csv")[1]:
                assert float(row["floor_us"]) > 0.5 and float(row["floor_ratio"]) > 0.9, row  # nothing beats a floor
                if "call_ns" in row:
                    assert float(row["call_ns"]) > 0 and float(row["sync_us"]) > float(row["launch_us"]) > 0, row
        for arguments in ((), ("--graph",)):
            expect(shunt("bench", "-b", "1M", "-e", "16M", "-f", "16", "--beside", *arguments, "--csv",
                         f"{folder}/rows.csv"), 0)
            for row in csv_rows(f"{folder}/rows.csv")[1]:
                assert int(row["beside_calls"]) >= 2 and 0 < float(row["products_ms"]) < float(row["beside_ms"]) * 1.1, row


if __name__ == "__main__":
    {case.__name__: case for case in (usage, run, info, topology, settings, documents, options, bench_right, bench_collectives,
                                      bench_files,
                                      bench_dies, bench_choose, progress, bench_gpu, plots, plot_sheet, plot_trace, pictures, decode, train,
                                      offenders, trace)}[sys.argv[4]]()
