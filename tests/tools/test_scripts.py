#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_scripts.py - the scripts that draw, compare and measure: their arithmetic and their output.

usage: test_scripts.py SOURCE_FOLDER CASE

Exit status 0: the case passed; a failed assertion shows the expected and the actual value.
"""

import ast
import csv
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

SOURCE = sys.argv[1]
LIMIT = 800  # seconds, to end a hang


def plot(*arguments):
    return subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/plot", *arguments], capture_output=True, text=True,
                          timeout=LIMIT)


def plot_file(folder, name, rows, columns="ranks,mode,place,bytes,count,type,op,algorithm,us,nccl_us,floor_us"):
    path = pathlib.Path(folder, name)
    path.write_text("\n".join(["# hardware: 4 x <GPU> & Co", columns, *rows]) + "\n")
    return str(path)


def curves(picture):
    """The points of each line in the picture, by panel."""
    found = {}
    for line in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        found.setdefault(line.get("class"), []).append(points)
    return found


def plots():
    """scripts/plot draws lines by the numbers and the same picture from the same files, and reports files that
    cannot be joined."""
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
        assert times[0][1] > times[1][1] > times[2][1] and rates[0][1] > rates[1][1] > rates[2][1], times  # y increases downwards
        assert times[2] == nccl_times[2] and times[1][0] == nccl_times[1][0] and nccl_times[1] != times[1], lines
        # The axes are logarithmic: 2 to 4 is as far as 8 to 16, and equal ratios of sizes have equal distances.
        assert abs((times[0][1] - times[1][1]) - (nccl_times[0][1] - nccl_times[1][1])) < 0.2, lines
        assert abs((times[1][0] - times[0][0]) / (times[2][0] - times[1][0]) - 6 / 4) < 0.01, times

        # A collective has its name and the factor of its bus bandwidth; files without the column are all-reduces.
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
        assert plot(eager, "-o", one).returncode == 0  # a single point is drawn
        for files, word in (((first, eager), "eager"), ((plot_file(folder, "d.csv", []),), "no rows"),
                            ((plot_file(folder, "e.csv", ["1"], "x"),), "e.csv"), (("/nowhere.csv",), "/nowhere.csv")):
            done = plot(*files, "-o", two)
            assert done.returncode == 1 and word in done.stderr and "Traceback" not in done.stderr, done.stderr


def plot_sheet():
    """A sheet has a panel for each collective, on the same axes, with forwarded sizes shaded."""
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
        # 8 us have the same height in both panels, which begin at the same size.
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
    """Every picture of results is up to date with its CSV file."""
    names = ("allreduce", "reducescatter", "reduce", "allgather", "alltoall", "broadcast", "gather", "scatter")
    found = [picture for name in names for picture in sorted(pathlib.Path(SOURCE, "docs/lab/results").glob(f"{name}-*.svg"))]
    assert found
    with tempfile.TemporaryDirectory() as folder:
        for picture in found:
            name, rest = picture.stem.split("-", 1)
            table = pathlib.Path(SOURCE, "selector/measured", ("graph-" if name == "allreduce" else "collectives-") + rest + ".csv")
            done = plot(str(table), "--collective", name, "-o", f"{folder}/now.svg")
            assert done.returncode == 0, done.stderr
            assert pathlib.Path(folder, "now.svg").read_bytes() == picture.read_bytes(), (
                f"{picture.name} is stale: scripts/plot selector/measured/{table.name} -o docs/lab/results/{picture.name}")
        sheets = sorted(pathlib.Path(SOURCE, "docs/lab/results").glob("collectives-*.svg"))
        assert sheets
        for picture in sheets:
            done = plot("--sheet", f"{SOURCE}/selector/measured/{picture.stem}.csv", "-o", f"{folder}/now.svg")
            assert done.returncode == 0, done.stderr
            assert pathlib.Path(folder, "now.svg").read_bytes() == picture.read_bytes(), f"{picture.name} is stale"


def script_module(name):
    """Load a script of scripts/ as a module."""
    sys.path.insert(0, f"{SOURCE}/scripts")
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), f"{SOURCE}/scripts/{name}")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def skips_without_gpus(name, *arguments):
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/{name}", *arguments],
                          env=dict(os.environ, PATH="/nowhere"), capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 77 and "SKIP" in done.stdout, (done.returncode, done.stdout, done.stderr)


def decode():
    """scripts/decode-bench: its arithmetic, and the reason it prints without a GPU."""
    bench = script_module("decode-bench")
    times = {("nccl", 1): [{"step": step, "exchanges": 640} for step in (5000, 1000, 900)],
             ("shunt", 1): [{"step": 800, "exchanges": 320}],
             ("nccl", 16): [{"step": 1600, "exchanges": 640}], ("shunt", 16): [{"step": 1600, "exchanges": 640}]}
    one, many = bench.rows_of(times, 4, bench.MODELS["dense"])
    assert (one["tokens_s"], one["nccl_tokens_s"], one["gain"]) == ("1250.0", "1000.0", "1.250"), one
    assert (one["predicted_us"], one["gained_us"], one["share"], one["exchange_us"]) == (
        "320.0", "200.0", "0.62", "5.00"), one
    assert (one["bytes"], many["bytes"], many["tokens_s"], many["share"]) == (8192, 131072, "10000.0", ""), many
    assert abs(bench.teams.difference([3.0, 4.0], [3.0, 4.5]) - 0.5 / 29.25 ** 0.5) < 1e-12
    for bad in ([float("nan"), 1.0], [float("inf"), 1.0]):
        assert bench.teams.difference(bad, [1.0, 1.0]) == float("inf") and bench.teams.difference([1.0, 1.0], bad) == float("inf")
    sets = {"pinned": (1500, 960), "deterministic": (1000, 320), "shunt": (980, 319)}
    times = {(name, batch): [{"step": step, "exchanges": exchanges}] * 3 for name, (step, exchanges) in sets.items()
             for batch in (1, 16)}
    row = list(bench.pinned_rows_of(times, 2, bench.MODELS["dense"]))[1]
    assert (row["pinned_tokens_s"], row["deterministic_tokens_s"], row["gain"], row["kept"]) == (
        "10666.7", "16000.0", "1.500", "0.980"), row
    assert (row["pinned_exchange_us"], row["deterministic_exchange_us"]) == ("15.00", "5.00"), row
    skips_without_gpus("decode-bench")


def decode_experts():
    """scripts/decode-bench --experts: its row, empty columns and their reasons, and what makes outputs wrong."""
    from types import SimpleNamespace

    bench = script_module("decode-bench")
    times = {("nccl", "gather_step"): [2000, 1000, 900], ("nccl", "gather_exchanges"): [5800],
             ("shunt", "gather_step"): [900], ("shunt", "gather_exchanges"): [580],
             ("shunt", "ep_step"): [800], ("shunt", "ep_exchanges"): [290]}
    row = bench.expert_row(times, 2)
    assert (row["nccl_gather_tokens_s"], row["nvidia_ep_tokens_s"], row["ep_tokens_s"]) == ("72000.0", "", "90000.0"), row
    assert (row["over_gather"], row["over_nvidia"], row["ep_exchange_us"]) == ("1.125", "", "5.00"), row
    times["nccl", "ep_step"] = [1200]
    assert bench.expert_row(times, 2)["over_nvidia"] == "1.500"

    def answer(values, layers=0.01, step=0.05, mark="a"):
        return {"hash": mark, "layers": layers, "step": step,
                "data": bench.base64.b64encode(bench.array.array("f", values).tobytes()).decode()}

    good = [answer([3.0, 4.0])] * 2
    assert bench.judge_experts({"nccl": good, "shunt": good}) and bench.judge_experts({"shunt": good})
    for bad in (answer([3.0, 4.0], layers=0.03), answer([3.0, 4.0], step=float("inf")), answer([3.0, 4.0], mark="b")):
        assert not bench.judge_experts({"nccl": good, "shunt": [good[0], bad]}), bad
    assert not bench.judge_experts({"nccl": good, "shunt": [answer([3.0, 5.0])] * 2})

    team = SimpleNamespace(ranks=[SimpleNamespace(text=["nvcc: not found\n"])])
    ready = {"nccl": [{"failure": "no library"}], "shunt": [{"failure": ""}]}
    field = SimpleNamespace(teams={"nccl": team, "shunt": team}, missing={})
    found = bench.failures_of(ready, field, SimpleNamespace(nccl_ep=None))
    assert list(found) == ["nccl"] and "--nccl-ep" in found["nccl"], found
    assert bench.failures_of(ready, field, SimpleNamespace(nccl_ep="x")) == {"nccl": "no library"}
    field.missing = {"shunt": "ended"}
    assert bench.failures_of({"nccl": [{"failure": ""}]}, field, SimpleNamespace(nccl_ep="x")) == {"shunt": "ended"}
    sets = bench.expert_sets(SimpleNamespace(nccl_ep="a/b", nccl="c", cpu=False))
    assert sets["nccl"][1]["DECODE_EP"].endswith("/a/b") and sets["nccl"][1]["LD_PRELOAD"].endswith("/c"), sets
    assert "DECODE_EP" not in bench.expert_sets(SimpleNamespace(nccl_ep=None, nccl=None, cpu=False))["nccl"][1]
    for arguments in (("--experts",), ("--model", "moe", "--experts", "flat"),
                      ("--model", "moe", "--experts", "--nccl-ep", "/nowhere.so")):
        refuses("decode-bench", *arguments)


def expert_calls():
    """scripts/expert_calls.py: the structures, magic words and numbers are those of shim/experts/nccl_ep.h."""
    sys.path.insert(0, f"{SOURCE}/scripts")
    import ctypes
    import expert_calls as calls

    header = pathlib.Path(SOURCE, "shim/experts/nccl_ep.h").read_text()
    bytes_of = {name: int(value) for name, value in re.findall(r"(NCCL_EP_\w+_V1) = (\d+)", header)}
    structures = {f"ncclEp{name}_t": value for name, value in vars(calls).items()
                  if isinstance(value, type) and re.search(rf"}} ncclEp{name}_t;", header)}
    assert len(structures) == 8, structures
    checked = {name: {"size"} for name in structures}
    for name, field, offset in re.findall(r"NCCL_EP_AT\((\w+), (\w+), (\d+)\);", header):
        if name in structures:
            checked[name].add(field)
            assert getattr(structures[name], field).offset == int(offset), (name, field)
    for name, field, end in re.findall(r"NCCL_EP_ENDS\((\w+), (\w+), (\w+)\);", header):
        if name in structures:
            checked[name].add(field)
            here = getattr(structures[name], field)
            assert here.offset + here.size == (bytes_of[end] if end in bytes_of else int(end)), (name, field)
    for name, size in re.findall(r"NCCL_EP_SIZE\((\w+), (\d+)\);", header):
        if name in structures:
            assert ctypes.sizeof(structures[name]) == int(size), name
    for name, structure in structures.items():
        fields = {field for field, _ in structure._fields_}
        body = re.search(rf"typedef struct {name[:-2]} {{(.*?)}} {name};", header, re.DOTALL)[1]
        declared = re.findall(r"(\w+)(?:\[\d+\])?;", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))
        assert sorted(fields) == sorted(declared), (name, fields, declared)
        if "magic" in fields:
            made = structure()
            word = "NCCL_EP_TENSOR_MAGIC" if structure is calls.Tensor else "NCCL_EP_MAGIC"
            assert made.size == ctypes.sizeof(structure) and f"{word} 0x{made.magic:X}u" in header, name
    for name, value in (("API_VERSION", calls.API_VERSION), ("ALGO_LOW_LATENCY", calls.LOW_LATENCY),
                        *((f"LAYOUT_{name.upper().replace('-', '_')}", value) for name, value in calls.LAYOUTS.items())):
        assert f"NCCL_EP_{name} = {value}" in header, name


FAKE_BENCH = """#!/bin/sh
while [ "$1" != --csv ]; do shift; done
printf '# a head\\ncollective,bytes,algorithm,us,nccl_us\\n' > "$2"
if [ -n "$NCCL_ALGO" ]; then
    printf 'allreduce,1024,%s,2.5,20\\nreduce,2048,push,3,\\n' "$TAKEN" >> "$2"
    [ "$SHUNT_DETERMINISTIC$NCCL_MAX_NCHANNELS" = 11 ]
else
    printf 'allreduce,1024,one,2.25,\\nreduce,2048,nccl,9,\\n' >> "$2"
    [ -z "$SHUNT_DETERMINISTIC" ]
fi
"""


def pinned():
    """scripts/pinned-bench: which variables each run gets, its table, and a call that is forwarded because it is pinned."""
    with tempfile.TemporaryDirectory() as folder:
        fake = pathlib.Path(folder, "shunt")
        fake.write_text(FAKE_BENCH)
        fake.chmod(0o755)
        for taken, status in (("one", 0), ("nccl", 1)):
            done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/pinned-bench", "--shunt", str(fake), "--csv",
                                   f"{folder}/out.csv"], capture_output=True, text=True, timeout=LIMIT,
                                  env=dict(os.environ, SHUNT_DEVICE="cpu", TAKEN=taken, SHUNT_DETERMINISTIC="1"))
            assert done.returncode == status, (done.stdout, done.stderr)
            assert ("FAILED: allreduce of 1024 bytes" in done.stdout) == (status == 1), done.stdout
        lines = [line for line in pathlib.Path(folder, "out.csv").read_text().splitlines() if line[0] != "#"]
        assert lines == ["collective,bytes,nccl_pinned_us,shunt_pinned_us,shunt_us", "allreduce,1024,20,2.5,2.25",
                         "reduce,2048,,3,9"], lines
    bench = script_module("pinned-bench")
    assert bench.faster("10", "9.5") == "9.5" and bench.faster("", "3") == "3" and bench.faster("", "") == ""
    skips_without_gpus("pinned-bench")


def readme():
    """scripts/readme-bench: the median of each row's runs, and no row that differs in more than its values."""
    bench = script_module("readme-bench")
    runs = [[{"bytes": "1024", "algorithm": "one", "us": us}, {"bytes": "4096", "algorithm": "two", "us": "7"}]
            for us in ("3", "1.25", "2.5")]
    assert list(bench.medians(runs, ("bytes", "algorithm"), ("us",))) == [
        {"bytes": "1024", "algorithm": "one", "us": "2.5", "us_runs": "3 1.25 2.5"},
        {"bytes": "4096", "algorithm": "two", "us": "7", "us_runs": "7 7 7"}]
    runs[1][0]["algorithm"] = "two"
    try:
        list(bench.medians(runs, ("bytes", "algorithm"), ("us",)))
    except AssertionError:
        skips_without_gpus("readme-bench", "calls")
        return
    raise AssertionError("rows of two algorithms have a median")


def replay():
    """scripts/replay-bench: the slowest rank, the median of the rounds, and whether every measurement was held."""
    bench = script_module("replay-bench")
    answers = [[2.0, 7.0, True], [3.0, 6.0, False]]
    assert bench.slowest(answers, 0) == [3.0, False] and bench.slowest(answers, 1) == [7.0, False]
    assert bench.slowest([4.0, 5.0], 0) == [5.0, True]
    times = {"nccl": [[1.0, True], [9.0, True], [2.0, True]], "shunt": [[1.5, True]] * 3, "unmixed": [[1.0, True]] * 3}
    found = {("replay", "1 stream", 8, 3, 65): times, ("host", "2 streams, after graphs", 1, 0, 0): times,
             ("launch", "2 streams", 1, 0, 1): {**times, "shunt": [[1.5, True], [1.5, False]]}}
    rows = [list(row.values()) for row in bench.rows_of(found, 2)]
    assert rows[0] == [2, "replay", "1 stream", 8, 3, 65, "2.00", "1.50", "1.00", "yes"], rows
    assert rows[1][-1] == "no", rows
    assert rows[2] == [2, "host", "2 streams, after graphs", 1, 0, 0, "2.00", "1.50", "1.00", "-"], rows
    skips_without_gpus("replay-bench")


def models():
    """scripts/model-hosts: the committed rows, published times beside the modelled ones, and its usage."""
    def run(*arguments):
        return subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/model-hosts", *arguments], capture_output=True, text=True,
                              timeout=LIMIT)

    committed = pathlib.Path(SOURCE, "docs/lab/results/experts-model.csv").read_text().splitlines()
    assert run("experts").stdout.splitlines() == [line for line in committed if line[0] != "#"]
    rows = pathlib.Path(SOURCE, "docs/lab/results/published-experts.csv").read_text().splitlines()
    lines = run("published").stdout.splitlines()
    assert len(lines) == sum(line[0] != "#" for line in rows) - 1 and all("modelled" in line for line in lines), lines
    assert "1 KB 11.2, 64 KB 12.7, 1024 KB 37.0" in run().stdout, run().stdout  # docs/lab/hosts.md
    done = run("none")
    assert done.returncode == 1 and "usage: " in done.stderr, done
    calls = script_module("model-hosts")
    assert abs(calls.chosen(256, 2) - (1 - 0.5 ** 8)) < 0.001 and calls.chosen(8, 8) == 1
    network, local = calls.sent("host", 100, 256, 2)
    assert 99 < network < 100 and network < calls.sent("rank", 100, 256, 2)[0] and local > network, (network, local)


def names_of_teams():
    """The names that scripts use from scripts/teams.py exist: without GPUs no test runs these scripts."""
    sys.path.insert(0, f"{SOURCE}/scripts")
    import teams

    users = 0
    for path in pathlib.Path(SOURCE, "scripts").iterdir():
        text = path.read_text(errors="replace") if path.is_file() else ""
        if "import teams" not in text:
            continue
        users += 1
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "teams":
                assert hasattr(teams, node.attr), f"{path.name}: teams.{node.attr}"
    assert users >= 5, users


def train():
    """scripts/train-bench: the slowest rank's time, the median of the rounds, the worst loss of any rank and step."""
    bench = script_module("train-bench")
    found = {(team, mode, n): [[{"ms": ms, "losses": [2.0, 1.0]}, {"ms": 1, "losses": [2.0, last]}] for ms in (50, 10, 20)]
             for mode in bench.MODES for n in bench.SEQUENCES for team, last in (("nccl", 1.0), ("shunt", 1.25))}
    found["shunt", "ddp", 4] = [[{"ms": 10, "losses": [2.0, 1.0]}, {"ms": 1, "losses": [2.0, 1.0]}]] * 3
    rows = list(bench.rows_of(found, 2, 1000))
    assert [row["tokens"] for row in rows] == [2000, 8000, 2000, 8000], rows
    assert (rows[0]["tokens_s"], rows[0]["gain"], rows[0]["worst"]) == ("100000", "1.000", "0.25"), rows[0]
    assert (rows[3]["tokens_s"], rows[3]["gain"], rows[3]["worst"]) == ("800000", "2.000", "0"), rows[3]
    skips_without_gpus("train-bench")


def refuses(name, *arguments):
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/{name}", *arguments], capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 2 and "error: " in done.stderr, (done.returncode, done.stdout, done.stderr)


def rivals():
    """scripts/rivals-bench: medians, empty columns of what failed, the fastest; a set that fails is left out alone."""
    from types import SimpleNamespace

    bench = script_module("rivals-bench")
    times = {("nccl", 1024): [9.0, 7.0, 8.0], ("shunt", 1024): [2.0], ("vllm", 1024): [3.5], ("nccl", 4096): [1.0]}
    one, two = bench.rows_of(times, (1024, 4096), 2)
    assert (one["nccl_us"], one["shunt_us"], one["vllm_us"], one["fastest"]) == ("8.00", "2.00", "3.50", "shunt"), one
    assert (two["shunt_us"], two["windows_us"], two["fastest"]) == ("", "", "nccl"), two
    assert list(one) == list(two) and len(one) == 3 + sum(map(len, bench.METHODS.values())), one

    def ends(team):
        if team.name == "torch":
            raise SystemExit("Traceback\nRuntimeError: no peer\nrivals-bench: torch: rank 0 ended")
        return team.name

    field = object.__new__(bench.teams.Field)
    field.limit, field.missing = time.monotonic() + 100, {}
    field.teams = {name: SimpleNamespace(name=name, kill=lambda: None) for name in ("nccl", "torch", "shunt")}
    assert field.each(ends, 10) == {"nccl": "nccl", "shunt": "shunt"}, field.missing
    assert field.missing == {"torch": "rivals-bench: torch: rank 0 ended: RuntimeError: no peer"}, field.missing
    assert list(field.teams) == ["nccl", "shunt"], field.teams
    skips_without_gpus("rivals-bench")
    refuses("rivals-bench", "--set", "none")


def clients():
    """scripts/clients-bench: the slowest rank, the median of the rounds, and what makes results wrong."""
    bench = script_module("clients-bench")

    def found(ours, theirs, tokens=(1, 2)):
        return {team: [[{"seconds": seconds, "values": values, "tokens": [1, 2]},
                        {"seconds": 0.01, "values": [3.0, 4.0], "tokens": list(tokens)}] for seconds in (0.5, 0.1, 0.2)]
                for team, values in (("shunt", ours), ("nccl", theirs))}

    row, right = bench.row_of("transformers", 2, found([3.0, 4.0], [3.0, 4.0]))
    assert right and (row["unit"], row["per_s"], row["gain"], row["worst"]) == ("tokens", "5.00", "1.000", "0"), row
    assert not bench.row_of("transformers", 2, found([3.0, 4.5], [3.0, 4.0]))[1]
    assert not bench.row_of("transformers", 2, found([3.0, 4.0], [3.0, 4.0], (1, 3)))[1]
    assert bench.teams.difference([float("nan")], [1.0]) == float("inf")
    skips_without_gpus("clients-bench")
    refuses("clients-bench", "none")


def groups():
    """scripts/groups-bench: the slowest group against the first, and against the median of NCCL's."""
    from types import SimpleNamespace

    bench = script_module("groups-bench")
    options = SimpleNamespace(gpus=2, groups=4, cpu=False)
    found = {}
    for question in bench.questions(options):
        for team, scale in (("nccl", 2), ("shunt", 1)):
            ranks = [[[10 * scale, 20 * scale], [5 * scale, 4 * scale]], [[11 * scale, 19 * scale], [5 * scale, 6 * scale]]]
            answers = ranks if question[0] == "in-turn" else [3.0 * scale, 2.0 * scale]
            found[team, question] = [bench.slowest(answers)]
    rows = list(bench.rows_of(found, options))
    assert [row["mode"] for row in rows[:2]] == ["eager", "graph"], rows[:2]
    assert (rows[0]["shunt"], rows[0]["worst"], rows[0]["ratio"]) == ("11 20", "1.818", "0.645"), rows[0]
    assert (rows[1]["shunt"], rows[1]["worst"], rows[1]["ratio"]) == ("5 6", "1.200", "0.545"), rows[1]
    assert (rows[-1]["shunt"], rows[-1]["nccl"], rows[-1]["ratio"]) == ("3.000", "6.000", "0.500"), rows[-1]
    skips_without_gpus("groups-bench")


def offenders():
    """Each promise: a row that barely keeps it, and one that barely breaks it."""
    def run(folder, rows, *options):
        path = plot_file(folder, "rows.csv", rows, "ranks,mode,place,bytes,count,type,op,algorithm,us,wrong,nccl_us")
        return subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", *options, path],
                              capture_output=True, text=True, timeout=LIMIT)

    keep = ["4,graph,out,4096,2048,bfloat16,sum,a,10,0,9.81",
            "4,graph,in,4096,2048,bfloat16,sum,a,10.9,0,",
            "4,graph,out,4096,512,double,max,a,12.4,,12.4",
            "4,graph,out,4096,1024,float,prod,a,12.4,0,",
            "4,graph,out+1,4094,2047,bfloat16,sum,a,14.9,0,15",
            "3,graph,out,4096,2048,bfloat16,avg,a,90,0,",  # no row to compare with
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
        # Each block of a collective's skewed row is one element shorter.
        columns = "ranks,mode,place,bytes,count,type,op,algorithm,us,wrong,nccl_us,ratio,collective"
        path = plot_file(folder, "moved.csv", ["4,graph,out,4096,512,bfloat16,none,push,10,0,9.81,,allgather",
                                               "4,graph,out+1,4088,511,bfloat16,none,push,16,0,16,,allgather"], columns)
        done = subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", path], capture_output=True,
                              text=True, timeout=LIMIT)
        assert "nccl 0/2, type 0/0, skew 1/1, wrong 0/2" in done.stdout, done.stdout + done.stderr
        assert "-b 4096 -e 4096 -d bfloat16 --rounds 15 --collective allgather --graph --skew" in done.stdout, done.stdout
        table = run(folder, keep, "--table").stdout.splitlines()
        assert table[2] == "| bfloat16 | 1.09, 1.09 | | | | |", table  # only the first row, in place, has one to compare with
        assert table[4] == "| float | | | | 1.24, 1.24 | |", table
        assert subprocess.run([sys.executable, "-B", f"{SOURCE}/scripts/offenders", "/nowhere.csv"],
                              capture_output=True).returncode == 2


def registers():
    """scripts/registers: a table of all files; a line for each difference; another nvcc's table is not compared; a file whose
    source is the table's is not compiled, unless the table was changed."""
    with tempfile.TemporaryDirectory() as folder:
        nvcc, table = pathlib.Path(folder, "nvcc"), pathlib.Path(folder, "table.csv")

        def run(version, used, *options, source="same", last="Used"):
            nvcc.write_text(f"""#!/bin/sh
                [ "$1" != --version ] || {{ echo "release, V{version}"; exit; }}
                case " $* " in *" -E "*) echo "{source}"; exit ;; esac
                echo "Compiling entry function '_Z6kernelILi8EEvv' for 'sm'
                Function properties for _Z6kernelILi8EEvv
                    96 bytes stack frame, 92 bytes spill stores, 180 bytes spill loads
                {last} {used} registers" >&2""")
            nvcc.chmod(0o755)
            return subprocess.run([f"{SOURCE}/scripts/registers", *options], capture_output=True, text=True, timeout=LIMIT,
                                  env=dict(os.environ, CUDACXX=str(nvcc)))

        first = run("13.0.1", 64)
        table.write_text(first.stdout)
        rows = first.stdout.splitlines()
        assert rows[0] == "# nvcc 13.0.1" and "sm_90,bulk/bulk_add,kernel<8>(),64,92,180,96" in rows, first
        assert sum(row.startswith("sm_80,") for row in rows) == 5 and len(rows) > 20, rows
        assert all(row[:2] in ("# ", "sm", "gp") for row in rows) and sum(row[:2] == "sm" for row in rows) > 20, rows
        done = run("13.0.1", 64, "--check", table, source="another")
        assert done.returncode == 0 and " 0 lines differ; update" in done.stdout, done
        done = run("13.0.1", 72, "--check", table, source="another")
        assert done.returncode == 1 and "-sm_90,bulk/bulk_add,kernel<8>(),64,92,180,96\n+sm_90" in done.stdout, done
        assert run("13.0.1", 64, "--check", table, source="another", last="Took").returncode == 1
        done = run("13.0.1", 72, "--check", table)
        assert done.returncode == 0 and " 0 lines differ; nothing was compiled" in done.stdout, done
        table.write_text(first.stdout.replace("kernel<8>(),64,", "kernel<8>(),63,", 1))
        done = run("13.0.1", 64, "--check", table)
        assert done.returncode == 1 and " 2 lines differ; update" in done.stdout, done
        done = run("12.8.9", 64, "--check", table)
        assert done.returncode == 77 and done.stdout.startswith("skipped: "), done


def plot_trace():
    """scripts/plot-trace: a bar for each call in its rank's row; a trace may be cut off."""
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


def bench_needs_nvcc():
    """scripts/bench with GPUs but without nvcc: an error before the set-up, unless the CPU device is requested."""
    def run(folder, **variables):
        path = f"{folder}/bin:/usr/bin:/bin"
        if shutil.which("nvcc", path="/usr/bin:/bin"):
            print("skipped: nvcc is in /usr/bin")
            sys.exit(77)
        return subprocess.run([f"{folder}/scripts/bench"], capture_output=True, text=True, timeout=LIMIT,
                              env={"PATH": path, "CUDA_HOME": "/nowhere", **variables})

    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("scripts/setup", "exit 3"), ("bin/nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'")):
            script = pathlib.Path(folder, name)
            script.parent.mkdir()
            script.write_text(f"#!/bin/sh\n{text}\n")
            script.chmod(0o755)
        for name in ("bench", "common.sh"):
            shutil.copy(f"{SOURCE}/scripts/{name}", f"{folder}/scripts")
        for nvcc in ("", "11.5"):
            if nvcc:
                fake_nvcc(f"{folder}/bin", nvcc)
            done = run(folder)
            assert done.returncode == 1, (done.returncode, done.stderr)
            assert "12.0 or newer" in done.stderr and "from NVIDIA's repository" in done.stderr, done.stderr
        assert run(folder, SHUNT_DEVICE="cpu").returncode == 3
        fake_nvcc(f"{folder}/bin", "12.0")
        assert run(folder).returncode == 3
        pathlib.Path(folder, "bin/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        assert run(folder).returncode == 3


def script_help():
    """A script's help comes before it sets anything up, or misses a build."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/scripts")
        for name in ("bench", "package", "setup"):
            for file in (name, "common.sh"):
                shutil.copy(f"{SOURCE}/scripts/{file}", f"{folder}/scripts")
            for option in ("--help", "-h"):
                done = subprocess.run([f"{folder}/scripts/{name}", option], cwd="/", capture_output=True, text=True, timeout=LIMIT)
                assert done.returncode == 0 and f"\nusage: {name} [" in done.stdout and done.stderr == "", done
        # A mistyped option installs nothing; the path has no apt-get, should it be tried.
        os.mkdir(f"{folder}/bin")
        for name in ("bash", "basename", "dirname", "sed"):
            os.symlink(shutil.which(name), f"{folder}/bin/{name}")
        done = subprocess.run([shutil.which("bash"), f"{folder}/scripts/setup", "--biuld"], capture_output=True, text=True,
                              env={"PATH": f"{folder}/bin"}, timeout=LIMIT)
        assert done.returncode == 2 and done.stdout == "" and done.stderr == "usage: setup [--build]\n", done


def fake_nvcc(folder, version):
    script = pathlib.Path(folder, "nvcc")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
    script.chmod(0o755)
    return str(script)


def common(command, **variables):
    """The output of a function of scripts/common.sh."""
    done = subprocess.run(["bash", "-euc", f". scripts/common.sh; {command}"], cwd=SOURCE, capture_output=True, text=True,
                          timeout=LIMIT, env=dict(os.environ, **variables))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def build_options():
    """scripts/common.sh: an nvcc that is too old does not hide a good one, and no build keeps an earlier setting
    without tests."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = fake_nvcc(f"{folder}/bin", "11.5"), fake_nvcc(f"{folder}/cuda/bin", "12.4")
        places = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "CUDA_HOME": f"{folder}/cuda"}
        assert common("find_nvcc", **places) == second
        fake_nvcc(f"{folder}/cuda/bin", "11.8")
        assert common("find_nvcc || echo none", **places) == "none"
        fake_nvcc(f"{folder}/bin", "13.0")
        assert common("find_nvcc", **places) == first
        assert common("find_nvcc", **dict(places, CUDA_HOME="/nowhere")) == first
    off = "-DSHUNT_TESTS=OFF"
    for preset in ("release", "quick", "asan"):
        said = common(f"cmake() {{ echo \"$@\"; }}; configure {preset}; configure {preset} {off}").splitlines()
        assert "-DSHUNT_TESTS=ON" in said[-2].split() and off not in said[-2], said
        assert said[-1].split()[-1] == off, said  # the last option applies


def check_without_git():
    """scripts/check prints one line with advice if git refuses the checkout or is missing."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        for path in ("scripts", ".git", "bin"):
            (root / path).mkdir(parents=True)
        shutil.copy(f"{SOURCE}/scripts/check", root / "scripts")
        git = root / "bin/git"

        def run():
            done = subprocess.run([sys.executable, "-B", root / "scripts/check"], capture_output=True, text=True,
                                  timeout=LIMIT, env=dict(os.environ, PATH=str(root / "bin")))
            assert done.returncode == 1 and done.stderr.startswith("check: ") and done.stderr.count("\n") == 1, done.stderr
            return done.stderr

        assert "install" in run()
        for word, said in (("safe.directory", "detected dubious ownership in repository at '/x'"), ("no index", "no index")):
            git.write_text(f"#!/bin/sh\necho \"fatal: {said}\" >&2\nexit 128\n")
            git.chmod(0o755)
            assert word in run()


CASES = (registers, build_options, check_without_git, plots, plot_sheet, plot_trace, pictures, decode, decode_experts,
         expert_calls, pinned, readme, groups, train, rivals, clients, replay, models, names_of_teams,
         offenders, bench_needs_nvcc, script_help)

if __name__ == "__main__":
    {case.__name__: case for case in CASES}[sys.argv[2]]()
