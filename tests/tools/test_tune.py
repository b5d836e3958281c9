#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_tune.py - `shunt tune`, and the effect of a table on a program, on the CPU device.

usage: test_tune.py SHUNT PRELOADABLE_LIBRARY SOURCE_FOLDER CASE
"""

import csv
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from test_tools import LIMIT, SHUNT, csv_rows, expect, shunt

HEAD = "# shunt table 2\n# machine: %s\n"
CPU = "0" * 16  # the CPU device has no fingerprint
NAME = f"table-{CPU}.csv"
QUICK = ("-n", "2", "-w", "1", "--rounds", "1")


def row(ranks=2, types="any", start=0, end="", algorithm="twoshot", grid="1,1", collective="allreduce"):
    return f"{collective},{ranks},host-{ranks},{types},{start},{end},{algorithm},{grid},by hand\n"


def rows_of(path):
    """Check a table's header and return its rows."""
    lines = pathlib.Path(path).read_text().splitlines()
    assert lines[0] == "# shunt table 2" and lines[1].startswith("# machine: "), lines
    return [line.split(",") for line in lines if line.startswith("allreduce,")]


def algorithms(*arguments, **variables):
    """The algorithms that `shunt bench` uses for 1K and 4K, and the library's stderr."""
    done = expect(shunt("bench", "-g", "2", "-b", "1K", "-e", "4K", "-f", "4", *QUICK, *arguments, **variables), 0)
    return [line.split()[4] for line in done.stdout.splitlines() if not line.startswith("#")], done.stderr


def tables():
    """A table in the cache folder is used; a malformed one, or another machine's, is reported and not used."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder, NAME)
        assert algorithms(SHUNT_CACHE_DIR=folder) == (["oneshot", "oneshot"], "")
        table.write_text(HEAD % CPU + row(end=2047) + row(ranks=3, algorithm="staged"))
        assert algorithms(SHUNT_CACHE_DIR=folder) == (["twoshot", "oneshot"], "")
        assert algorithms(XDG_CACHE_HOME=folder, SHUNT_CACHE_DIR="") == (["oneshot", "oneshot"], "")
        pathlib.Path(folder, "shunt").mkdir()
        pathlib.Path(folder, "shunt", NAME).write_text(HEAD % CPU + row(start=2048, algorithm="staged"))
        assert algorithms(XDG_CACHE_HOME=folder, SHUNT_CACHE_DIR="") == (["oneshot", "staged"], "")
        pathlib.Path(folder, ".cache").mkdir()
        pathlib.Path(folder, "shunt").rename(pathlib.Path(folder, ".cache", "shunt"))
        assert algorithms(HOME=folder, XDG_CACHE_HOME="", SHUNT_CACHE_DIR="") == (["oneshot", "staged"], "")
        assert algorithms(HOME="/dev/null", XDG_CACHE_HOME="", SHUNT_CACHE_DIR="") == (["oneshot", "oneshot"], "")
        # A row for two-byte floats applies only to these; a policy has precedence; the built-in table can be selected.
        table.write_text(HEAD % CPU + row(types="f2"))
        assert algorithms(SHUNT_CACHE_DIR=folder)[0] == ["twoshot", "twoshot"]
        assert algorithms("-d", "int32", SHUNT_CACHE_DIR=folder)[0] == ["oneshot", "oneshot"]
        assert algorithms(SHUNT_CACHE_DIR=folder, SHUNT_ALGO="2K-=staged")[0] == ["twoshot", "staged"]
        assert algorithms(SHUNT_CACHE_DIR=folder, SHUNT_ALGO="builtin")[0] == ["oneshot", "oneshot"]
        table.write_text(HEAD % CPU + row(ranks=4))
        expect(shunt("info", SHUNT_CACHE_DIR=folder), 0, "0- twoshot, at most 1 blocks of 1 threads (tuned table)")

        # Wrong rows do not affect right ones.
        table.write_text(HEAD % CPU + row(end=2047) + "allreduce,2,host-2,some,0,,staged,1,1,s\n" +
                         row(algorithm="later"))
        names, log = algorithms(SHUNT_CACHE_DIR=folder)
        assert names == ["twoshot", "oneshot"], names
        assert f"{table}:4:20: expected any, or some of f1 f2 f4 f8 i1 i2 i4 i8 joined by +; the line is skipped" in log, log
        assert f"{table}:5: this version has no algorithm later of allreduce; the line is skipped" in log, log
        table.write_text(HEAD % CPU + "# link: 0 GB/s\n" + row(end=2047))
        names, log = algorithms(SHUNT_CACHE_DIR=folder)
        assert names == ["twoshot", "oneshot"], names
        assert log.count("\n") == log.count(f"{table}:3:9: expected a rate from 0.1 to") == 2, log  # one line per process
        for text, words in (("nonsense\n", ":1:1: expected \"# shunt table 2\"; the built-in table is used"),
                            ("x" * (2 << 20), "not a file of at most 1 MiB; the built-in table is used")):
            table.write_text(text)
            names, log = algorithms(SHUNT_CACHE_DIR=folder)
            assert names == ["oneshot", "oneshot"] and f"{table}" in log and words in log, (names, log)

        # In the first format rows for captured calls apply to all calls.
        table.write_text("# shunt table 1\n# machine: " + CPU + "\nallreduce,2,host-2,eager,any,0,,staged,1,1,s\n"
                         "allreduce,2,host-2,captured,any,0,2047,twoshot,1,1,s\n")
        assert algorithms(SHUNT_CACHE_DIR=folder) == (["twoshot", "oneshot"], "")

        # Another machine's table is not used, whether named or found, unless forced.
        other = f"{folder}/other.csv"
        pathlib.Path(other).write_text(HEAD % "abc" + row())
        names, log = algorithms(SHUNT_TABLE=other)
        assert names == ["oneshot", "oneshot"] and "another machine (0000000000000abc, this is 00000000000" in log, log
        assert algorithms(SHUNT_TABLE=other, SHUNT_TABLE_FORCE="1") == (["twoshot", "twoshot"], "")
        names, log = algorithms(SHUNT_TABLE=f"{folder}/none.csv")
        assert names == ["oneshot", "oneshot"] and "none.csv: No such file" in log, log
        os.mkfifo(f"{folder}/pipe")  # a pipe without a writer, for which the library must not wait
        names, log = algorithms(SHUNT_TABLE=f"{folder}/pipe")
        assert names == ["oneshot", "oneshot"] and "pipe: not a file" in log, log
        many = HEAD % CPU + "".join(row(start=i, end=i) for i in range(100)) + row(algorithm="staged")
        table.write_text(many)
        names, log = algorithms(SHUNT_CACHE_DIR=folder)
        assert names == ["oneshot", "oneshot"] and "more than 96 rows for 2 ranks" in log, log


def tune():
    """A run leaves a table and a report; rows that it did not measure stay."""
    with tempfile.TemporaryDirectory() as folder:
        table, report = f"{folder}/a/b/{NAME}", f"{folder}/report.csv"
        os.makedirs(f"{folder}/a/b")
        kept = row(types="i8", algorithm="staged") + row(ranks=3)
        link = "# link: 12.500 GB/s among 4 GPUs, one way 1.000 us\n"
        pathlib.Path(table).write_text(HEAD % CPU + link + kept + row(types="f2+f4+f8", grid="7,1"))
        done = expect(shunt("tune", "-g", "2", "-b", "1K", "-e", "4K", "--collective", "allreduce", "--csv", report,
                            SHUNT_CACHE_DIR=f"{folder}/a/b"), 0, "# table: " + table, "as fast as the built-in")
        facts, measured = csv_rows(report)
        assert facts["command"].startswith("shunt tune -g 2"), facts
        assert all(r["collective"] == "allreduce" for r in measured), measured
        assert [(r["type"], r["bytes"]) for r in measured] == [
            (t, b) for t in ("float", "bfloat16") for b in ("1024", "2048", "4096")], measured
        for r in measured:
            assert float(r["us"]) > 0 and r["builtin"] == "oneshot" and r["nccl_us"] == "", r
            assert (r["algorithm"] == "builtin") == (r["blocks"] == "0"), r  # there is no NCCL to forward to
        rows = rows_of(table)
        assert "".join(",".join(r) + "\n" for r in rows if r[3] == "i8" or r[1] == "3") == kept, rows
        assert link in pathlib.Path(table).read_text()  # the CPU device has no links to measure
        # The old row stays for unmeasured types and larger messages.
        for r in rows:
            if r[7] == "7" and ("f2" in r[3] or "f4" in r[3]):
                assert int(r[4]) == 5793, r  # half the logarithmic distance from 4K to 8K
        assert any(r[7] == "7" and r[3] == "f8" for r in rows), rows
        assert sorted(os.listdir(f"{folder}/a/b")) == [NAME], os.listdir(f"{folder}/a/b")  # no other file remains
        expect(shunt("tune", "-g", "2", "-e", "1K", SHUNT_CACHE_DIR="/proc/nowhere"), 1, "cannot be written")


def tune_json():
    """The JSON has the report's facts, also if the time runs out, and a reason for what was not measured."""
    small = ("tune", "-g", "2", "-b", "1K", "-e", "2K", "--collective", "allreduce", "-d", "float")
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table.csv"
        done = expect(shunt(*small, "--table", table, "--json", "-", "--csv", f"{folder}/rows.csv"), 0)
        told = json.loads(done.stdout)
        assert f"# table: {table}\n" in done.stderr and "# no_nccl: the CPU device" in done.stderr, done
        assert (told["table"], told["complete"], told["slower"], told["nccl"]) == (table, True, None, None), told
        facts, rows = csv_rows(f"{folder}/rows.csv")
        assert told["no_nccl"] == facts["no_nccl"] and told["command"] == facts["command"], (told, facts)
        assert [row["bytes"] for row in told["rows"]] == [1024, 2048] == [int(row["bytes"]) for row in rows], told
        for row, line in zip(told["rows"], rows):
            assert row["class"] == "host-2" and row["nccl_us"] is row["beside_ms"] is None, row
            assert all(str(row[name]) == line[name] for name in ("collective", "ranks", "mode", "type", "algorithm")), row
            assert abs(row["us"] - float(line["us"])) < 0.002, (row, line)
        done = shunt(*small, "--check", "--table", table, "--json", f"{folder}/check.json")
        told = json.loads(pathlib.Path(folder, "check.json").read_text())
        assert told["table"] is None and done.returncode == (told["slower"] > 0), (done, told)
        for seconds in ("3", "12", "48", "192"):  # a slow machine has its first result later
            done = shunt("tune", "-g", "2", "-b", "4", "-e", "64M", "--limit", seconds, "--table", table, "--json", "-")
            if done.returncode == 0:
                break
            assert done.returncode == 1 and "the time limit was reached" in done.stderr, done
        told = json.loads(expect(done, 0).stdout)
        assert not told["complete"] and told["rows"], told
        expect(shunt(*small, "--table", table, "--json", "/nowhere/file.json"), 1, "/nowhere/file.json: No such file")
        expect(shunt(*small, "--table", table, "--json", "/dev/full"), 1, "could not be written whole")
        done = expect(shunt(*small, "--table", table, "--csv", "-"), 0)
        assert len(list(csv.DictReader(line for line in done.stdout.splitlines() if line[0] != "#"))) == 2, done


def tune_collectives():
    """Every collective with algorithms here is measured; those that only move data once, for all types."""
    known = [line.split(",")[0] for line in shunt("info").stdout.splitlines() if line.endswith(", host-4:")]
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.csv"
        expect(shunt("tune", "-g", "2", "-b", "1K", "-e", "1K", "--csv", report, SHUNT_CACHE_DIR=folder), 0)
        measured = [(r["collective"], r["type"]) for r in csv_rows(report)[1]]
        reducing = ("allreduce", "reducescatter", "reduce")
        assert measured == [(c, t) for c in known for t in ("float", "bfloat16")[:2 if c in reducing else 1]], measured


def tune_check():
    """--check's verdict on a table follows from the measurements; an empty table is never slower."""
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table.csv"
        # On the CPU device a block is a thread that the call creates, so sixteen should cost more than they gain, but this
        # machine may be busy. So the expected verdict is that of the measurement, unless a figure is within a hundredth
        # of the limit, which rounding hides.
        pathlib.Path(table).write_text(HEAD % CPU + row(end=10000, algorithm="oneshot", grid="16,1"))
        case = ("tune", "--check", "-g", "2", "-b", "8K", "-e", "16K", "-d", "float",
                "--collective", "allreduce", "--table", table)
        done = shunt(*case, "--csv", f"{folder}/check.csv")
        rows = csv_rows(f"{folder}/check.csv")[1]
        slower, ratio = "float, 8192 bytes" in done.stderr, float(rows[0]["ratio"])
        assert slower == (ratio < 0.98) or abs(ratio - 0.98) < 0.01, done.stdout + done.stderr
        expect(done, 1 if slower else 0)
        assert f"# {int(slower)} of 2 sizes slower" in done.stdout, done.stdout + done.stderr
        assert "16384 bytes:" not in done.stderr and [r["algorithm"] for r in rows] == ["oneshot", "builtin"], rows
        pathlib.Path(table).write_text(HEAD % CPU)
        expect(shunt(*case), 0, "# 0 of 2 sizes slower")


def tune_check_fails():
    """A check of a table that programs cannot use, or one that does not measure all sizes, is no pass."""
    small = ("tune", "--check", "-g", "2", "-b", "1K", "-e", "2K", "-d", "float", "--collective", "allreduce")
    with tempfile.TemporaryDirectory() as folder:
        none, other, text = (f"{folder}/{name}.csv" for name in ("none", "other", "text"))
        pathlib.Path(other).write_text(HEAD % "abc")  # without rows it is never slower than the built-in one
        pathlib.Path(text).write_text("root:x:0:0\n")
        for table, words in ((none, ": No such file or directory"), (text, ":1:1: expected"), (folder, ": Is a directory"),
                             (other, " was measured on another machine (0000000000000abc, this is 0000000000000000)")):
            for arguments, variables in ((("--table", table), {}), ((), {"SHUNT_TABLE": table})):
                done = expect(shunt(*small, *arguments, **variables), 1, f"shunt tune: {table}{words}", "nothing was checked",
                              "--table")
                assert len(done.stderr.splitlines()) == 1 and done.stdout == "", done
        expect(shunt(*small, "--table", other, SHUNT_TABLE_FORCE="1", SHUNT_DEBUG="none"), 0, " of 2 sizes slower")
        pathlib.Path(folder, NAME).write_text("no table")
        expect(shunt(*small, SHUNT_CACHE_DIR=folder), 1, f"shunt tune: {folder}/{NAME}:1:1: expected")
        pathlib.Path(folder, NAME).unlink()
        expect(shunt(*small, SHUNT_CACHE_DIR=folder), 0, "# 0 of 2 sizes slower")  # the built-in table alone
        for seconds in ("3", "12", "48", "192"):  # a slow machine has its first result later
            done = shunt("tune", "--check", "-g", "2", "-b", "4", "-e", "64M", "--limit", seconds, "--json",
                         f"{folder}/check.json", SHUNT_CACHE_DIR=folder)
            assert done.returncode == 1 and "the time limit was reached" in done.stderr, done
            if done.stdout:
                break
        assert re.search(r"^# 0 of \d+ sizes slower than .*; incomplete: \d+% measured$", done.stdout.splitlines()[-1]), done
        assert not json.loads(pathlib.Path(folder, "check.json").read_text())["complete"]


MEASURING, MEASURED, FAILED = "measuring 2 GPUs once", "; the table is ", "are not measured: "
WAITING = "another process measures; waiting at most "
PROGRAM = ("bench", "-g", "2", "-b", "1K", "-e", "1K", *QUICK)


def first_start(folder, *command, **variables):
    """Start a command whose programs leave notes in a folder."""
    environment = dict(os.environ, SHUNT_CACHE_DIR=folder, SHUNT_TUNE="1", SHUNT_TIMEOUT_MS="600000", HOME=folder,
                       **variables)
    return subprocess.Popen([SHUNT, *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def first_run(folder, *command, output=None, **variables):
    """The same, but wait for its end; returns its output."""
    process = first_start(folder, *command, **variables)
    out, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and output in (None, out), (out, error)
    return error


def first_files(folder):
    """The kinds of files in a folder, without what a process leaves that is killed while it writes (a later one removes
    it)."""
    return sorted(name.split("-")[0] for name in os.listdir(folder) if not name.startswith(".") and ".new-" not in name)


def first_note(folder):
    return next(pathlib.Path(folder).glob("wanted-*"))


def first_measured(folder, said):
    """What the run says that measures. A machine that is too busy to measure in time leaves a line and a failed note
    instead; then another run measures by the note as it was."""
    end = time.monotonic() + LIMIT / 4
    while MEASURED not in said:
        assert said.count(MEASURING) == 1 and FAILED in said and "estimates are used" in said, said
        assert "the time ran out after" in said or "it took too long" in said, said
        assert "wanted" in first_files(folder) and time.monotonic() < end, said
        note, failed = first_note(folder).read_text().splitlines(keepends=True)
        assert failed == "failed\n", failed
        first_note(folder).write_text(note)
        said = first_run(folder, "run", "--", "true")
    assert said.count(MEASURING) == 1 and len(said.splitlines()) == 2 and "table" in first_files(folder), said
    return said


def first_table(folder, said):
    """A run measures, and leaves a table and no note."""
    assert f"the table is {folder}/{NAME}\n" in first_measured(folder, said), said
    assert "wanted" not in first_files(folder), first_files(folder)


def first_again(folder):
    """Whether a run ended before it was killed, as on a busy machine; its note is then restored."""
    if first_files(folder) != ["table"]:
        return False
    pathlib.Path(folder, NAME).unlink()
    first_run(folder, *PROGRAM)
    return True


def tune_first():
    """A program without a table leaves a note; the next `shunt run` measures before its program, once."""
    with tempfile.TemporaryDirectory() as folder:
        nothing = (folder, "run", "--", "echo", "program")
        assert first_run(*nothing, output="program\n") == "" and first_files(folder) == []
        log = first_run(folder, *PROGRAM, SHUNT_DEBUG="info")
        assert "there is no table for class host-2" in log, log
        assert "`shunt tune` measures it, and so does the next `shunt run`" in log, log
        assert first_files(folder) == ["wanted"] and first_note(folder).read_text() == "host-2 0 -\n"
        # A killed run leaves neither a table nor a lock, so the next run measures.
        killed = None
        while killed is None or first_again(folder):
            killed = first_start(*nothing)
            assert MEASURING in killed.stderr.readline()
            killed.kill()
            killed.communicate(timeout=LIMIT)
        assert first_files(folder) == ["wanted"], first_files(folder)
        # One rank of a job measures, then all start their programs; only these write to stdout. The measurement ignores
        # the program's settings.
        start = time.monotonic()
        ranks = [first_start(*nothing, SHUNT_DEBUG="info", SHUNT_STATS="1", NCCL_ALGO="Ring") for _ in range(8)]
        said = [rank.communicate(timeout=LIMIT) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * 8 and {out for out, _ in said} == {"program\n"}, said
        lines = [line for _, error in said for line in error.splitlines()]
        assert all(error.count(WAITING) <= 1 for _, error in said) and sum(MEASURING in line for line in lines) == 1, said
        print(f"eight ranks: {time.monotonic() - start:.1f} s")
        first_table(folder, "".join(line + "\n" for line in lines if WAITING not in line))
        table = pathlib.Path(folder, NAME)
        assert "# measured: host-2, nccl 0\n" in table.read_text()
        first_run(folder, *PROGRAM)
        assert "wanted" not in first_files(folder) and first_run(*nothing) == ""
        # A table of another NCCL version causes one new measurement for each version.
        table.write_text(table.read_text().replace("host-2, nccl 0", "host-2, nccl 22809"))
        assert "was measured with another NCCL" in first_run(folder, *PROGRAM, SHUNT_DEBUG="info")
        first_table(folder, first_run(*nothing))
        lines = ["# measured: host-2, nccl 22809\n", "# measured: host-2, nccl 0\n"]
        assert "".join(lines) in table.read_text()
        table.write_text(table.read_text().replace("".join(lines), "".join(reversed(lines))))
        first_run(folder, *PROGRAM)
        assert "wanted" not in first_files(folder), first_files(folder)
        # A note of a class that these GPUs do not have is followed once.
        table.unlink()
        first_run(folder, *PROGRAM)
        first_note(folder).write_text("other-2 0 -\n")
        first_measured(folder, first_run(*nothing))
        text = first_note(folder).read_text()
        assert text.startswith("other-2 0 -\n") and text.endswith("\nnever\n") and first_run(*nothing) == "", text


def children(process):
    """The children of a process; none if it has ended."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def generations(process):
    """The process's children, their children, and the children of those."""
    found = [[process]]
    for _ in range(3):
        found.append([child for one in found[-1] for child in children(one)])
    return found[1:]


def gone(processes):
    """Whether the processes end within some seconds; zombies count as ended."""
    def lives(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False
    end = time.monotonic() + 20
    while any(map(lives, processes)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(lives, processes))


def tune_first_ends():
    """If `shunt run` is killed at any time, all its processes end, and no partial table remains. A hanging
    measurement is ended in time."""
    with tempfile.TemporaryDirectory() as folder:
        nothing = (folder, "run", "--", "true")
        first_run(folder, *PROGRAM)
        for seconds in (0.01, 0.2, None):  # None: when both ranks run
            killed = None
            while killed is None or first_again(folder):
                killed = first_start(*nothing)
                assert MEASURING in killed.stderr.readline()
                time.sleep(seconds or 0)
                keeper, measuring, ranks = generations(killed.pid)
                while seconds is None and len(ranks) < 2 and killed.poll() is None:
                    keeper, measuring, ranks = generations(killed.pid)
                killed.kill()
                killed.communicate(timeout=LIMIT)
            assert gone(keeper + measuring + ranks) and first_files(folder) == ["wanted"], first_files(folder)
        assert len(keeper) == 1 and len(measuring) == 1 and len(ranks) == 2, (keeper, measuring, ranks)
        start = time.monotonic()
        stuck = first_start(*nothing)
        assert MEASURING in stuck.stderr.readline()
        measuring = children(children(stuck.pid)[0])
        while len(ranks := children(measuring[0])) < 2 and stuck.poll() is None:
            time.sleep(0.01)
        os.kill(measuring[0], signal.SIGSTOP)
        error = stuck.communicate(timeout=LIMIT)[1]
        assert stuck.returncode == 0 and len(error.splitlines()) == 1 and "took too long" in error, error
        assert gone(measuring + ranks) and first_files(folder) == ["wanted"], first_files(folder)
        print(f"one that hangs: {time.monotonic() - start:.1f} s")
        # Measurements of only some collectives give no table.
        first_note(folder).write_text("host-2 0 -\n")
        slow = first_start(*nothing)
        assert MEASURING in slow.stderr.readline()
        measuring = children(children(slow.pid)[0])
        while len(ranks := children(measuring[0])) < 2 and slow.poll() is None:
            time.sleep(0.01)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        error = slow.communicate(timeout=LIMIT)[1]
        assert FAILED in error and "the time ran out after" in error and first_files(folder) == ["wanted"], error
        # A stopped run (Ctrl-Z) delays another one for a limited time, which is reported.
        first_note(folder).write_text("host-2 0 -\n")
        stopped = first_start(*nothing)
        assert MEASURING in stopped.stderr.readline()
        keeper = children(stopped.pid)
        os.kill(keeper[0], signal.SIGSTOP)
        start = time.monotonic()
        error = first_run(*nothing)
        assert len(error.splitlines()) == 1 and WAITING in error, error
        print(f"another, while it is stopped: {time.monotonic() - start:.1f} s")
        stopped.kill()
        stopped.communicate(timeout=LIMIT)
        assert gone(keeper)


def tune_first_fails():
    """Whatever prevents `shunt run` from measuring gives one line or none, and the program runs."""
    with tempfile.TemporaryDirectory() as folder:
        nothing = (folder, "run", "--", "true")
        for variables in ({"SHUNT_TUNE": "0"}, {"SHUNT_TUNE": "auto"}, {"SHUNT_ALGO": "oneshot"}):
            expect(shunt(*PROGRAM, **{"SHUNT_CACHE_DIR": folder, "SHUNT_TUNE": "1", **variables}), 0)
            assert first_files(folder) == [], (variables, first_files(folder))
        # The ranks of `shunt tune` leave no notes, since they have SHUNT_ALGO=builtin, whatever their parent has read.
        expect(shunt("tune", "-g", "2", "-b", "1K", "-e", "1K", "--collective", "allreduce", SHUNT_CACHE_DIR=folder,
                     SHUNT_TUNE="1"), 0)
        assert first_files(folder) == ["table"], first_files(folder)
        pathlib.Path(folder, NAME).unlink()
        # Where no note can be left, the log does not promise a measurement.
        log = expect(shunt(*PROGRAM, SHUNT_CACHE_DIR="", XDG_CACHE_HOME="", HOME="/dev/null", SHUNT_TUNE="1",
                           SHUNT_DEBUG="info"), 0).stderr
        assert "no note for `shunt run` can be left" in log and "so does the next" not in log, log
        # Measuring is disabled by a setting.
        first_run(folder, *PROGRAM)
        assert first_run(folder, "run", "--no-tune", "--", "sh", "-c", "echo $SHUNT_TUNE$SHUNT_RUN", output="0\n") == ""
        assert first_run(folder, "run", "--", SHUNT, "run", "--", "sh", "-c", "echo $SHUNT_RUN", SHUNT_ALGO="oneshot",
                         output="1\n") == ""
        for variables in ({"SHUNT_ENABLE": "0"}, {"SHUNT_TABLE": "/nowhere"}, {"SHUNT_ALGO": "oneshot"}):
            assert first_run(*nothing, **variables) == "" and first_files(folder) == ["wanted"], variables
        assert expect(shunt("run", "--", "true", SHUNT_CACHE_DIR=folder, SHUNT_TUNE="0"), 0).stderr == ""
        conf = pathlib.Path(folder, ".config", "shunt", "shunt.conf")
        conf.parent.mkdir(parents=True)
        conf.write_text("SHUNT_TUNE=0\n")
        assert expect(shunt("run", "--", "true", SHUNT_CACHE_DIR=folder, HOME=folder), 0).stderr == ""
        assert first_files(folder) == ["wanted"], first_files(folder)
        # If the table cannot be written, a line is printed and an hour passes before the next attempt.
        pathlib.Path(folder, NAME).mkdir()
        said = first_run(*nothing)
        assert len(said.splitlines()) == 1 and FAILED in said and "cannot be written" in said and "estimates are used" in said, said
        assert first_note(folder).read_text() == "host-2 0 -\nfailed\n"
        first_run(folder, *PROGRAM)
        assert first_run(*nothing) == "" and first_note(folder).read_text().endswith("failed\n")
        os.utime(first_note(folder), (time.time() - 4000,) * 2)
        assert first_run(*nothing) == "" and first_files(folder) == ["table"], first_files(folder)
        pathlib.Path(folder, NAME).rmdir()
        # A note of other GPUs is reported once, and a note is removed if `shunt tune` has measured since.
        first_run(folder, *PROGRAM)
        first_note(folder).rename(str(first_note(folder)).replace(CPU, "1" * 16))
        said = first_run(*nothing)
        assert len(said.splitlines()) == 1 and "of another kind" in said and first_files(folder) == ["wanted"], said
        assert first_note(folder).read_text() == "host-2 0 -\nnever\n" and first_run(*nothing) == ""
        first_note(folder).unlink()
        first_run(folder, *PROGRAM)
        pathlib.Path(folder, NAME).write_text(HEAD % CPU + "# measured: host-2, nccl 0\n" + row())
        assert first_run(*nothing) == "" and first_files(folder) == ["table"], first_files(folder)
        # A table that was edited wrongly is kept, with the wrong line.
        for text, place in (("\ufeff" + HEAD % CPU + row(ranks=3), "1:1"), (HEAD % CPU + row(ranks=3, types="f16"), "3:20")):
            pathlib.Path(folder, NAME).write_text(text)
            first_run(folder, *PROGRAM)
            said = first_run(*nothing)
            assert len(said.splitlines()) == 1 and f"{FAILED}{folder}/{NAME}:{place}: expected" in said, said
            assert pathlib.Path(folder, NAME).read_text() == text and first_files(folder) == ["table", "wanted"], said
            first_note(folder).unlink()
        # With another NCCL, rows of `shunt tune` or the user stay until `shunt tune` measures again.
        table = HEAD % CPU + "# measured: host-2, nccl 22809\n" + row()
        pathlib.Path(folder, NAME).write_text(table)
        first_run(folder, *PROGRAM)
        said = first_run(*nothing)
        assert len(said.splitlines()) == 1 and "`shunt tune` measures them anew" in said, said
        first_run(folder, *PROGRAM)
        assert first_run(*nothing) == "" and first_note(folder).read_text() == "host-2 0 -\nnever\n"
        assert pathlib.Path(folder, NAME).read_text() == table
        expect(shunt("tune", "-g", "2", "-b", "1K", "-e", "1K", "--collective", "allreduce", SHUNT_CACHE_DIR=folder), 0)
        assert "nccl 0\n" in pathlib.Path(folder, NAME).read_text() and first_files(folder) == ["table"], first_files(folder)


def tune_stops():
    """Interrupted or at its limit, `shunt tune` leaves a table, reports that, and its ranks are gone. A machine
    without a result by then gets a longer limit."""

    def limited(seconds, folder):
        return shunt("tune", "-g", "2", "-b", "4", "-e", "64M", "--limit", str(seconds), SHUNT_CACHE_DIR=folder)

    def sent(number, seconds, folder):
        command = [SHUNT, "tune", "-g", "2", "-b", "4", "-e", "64M", "--limit", str(LIMIT)]
        parent = subprocess.Popen(command, env=dict(os.environ, SHUNT_CACHE_DIR=folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # nohup ignores SIGHUP
        time.sleep(seconds)
        parent.send_signal(number)
        out, error = parent.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(command, parent.returncode, out, error)

    def interrupted(seconds, folder):
        return sent(signal.SIGINT, seconds, folder)

    def hung_up(seconds, folder):
        return sent(signal.SIGHUP, seconds, folder)

    for stop, word in ((limited, "the time limit was reached after"), (interrupted, "interrupted after"),
                       (hung_up, "interrupted after")):
        with tempfile.TemporaryDirectory() as folder:
            for seconds in (3, 12, 48, 192):
                done = stop(seconds, folder)
                if done.returncode == 0:
                    break
                assert done.returncode == 1 and word in done.stderr, done
            expect(done, 0, "# table: ")
            assert word in done.stderr, done.stderr
            rows_of(f"{folder}/{NAME}")


def tune_named():
    """The table goes to SHUNT_TABLE, since programs read that one; --table has precedence. A file that is no table of
    this machine is kept."""
    small = ("tune", "-g", "2", "-b", "1K", "-e", "1K", "-d", "float", "--collective", "allreduce")
    with tempfile.TemporaryDirectory() as folder:
        cache, table, other = (f"{folder}/{name}" for name in ("cache", "a/table.csv", "other.csv"))
        for _ in range(2):  # a new file, and one with rows
            done = expect(shunt(*small, SHUNT_TABLE=table, SHUNT_CACHE_DIR=cache), 0, f"# table: {table}\n")
            assert rows_of(table) is not None and done.stderr == "" and not os.path.exists(cache), done
        expect(shunt(*small, "--table", other, SHUNT_TABLE=table), 0, f"# table: {other}\n")
        for text, words in ((HEAD % "abc" + row(), " was measured on another machine ("), ("no table", ":1:1: expected")):
            pathlib.Path(other).write_text(text)
            done = expect(shunt(*small, SHUNT_TABLE=other), 1, f"shunt tune: SHUNT_TABLE: {other}{words}", "--table")
            assert pathlib.Path(other).read_text() == text and done.stdout == "", done
            assert len(done.stderr.splitlines()) == 1, done


def few_bytes():
    """Files of this process cannot grow, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def tune_unwritable():
    """A table that cannot be written is reported before measuring; a missing folder is created."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "file").touch()
        for arguments, variables in (((), {"SHUNT_CACHE_DIR": f"{folder}/file"}), ((), {"SHUNT_CACHE_DIR": "/proc/no"}),
                                     (("--table", f"{folder}/file/t.csv"), {}), (("--table", folder), {})):
            done = expect(shunt("tune", "-g", "2", "-e", "1K", *arguments, **variables), 1, "SHUNT_CACHE_DIR", "--table")
            assert done.stdout == "", done.stdout
        full = subprocess.run([SHUNT, "tune", "-g", "2", "-e", "1K", "--table", f"{folder}/t.csv"], capture_output=True,
                              text=True, preexec_fn=few_bytes)
        assert full.returncode == 1 and full.stdout == "" and "nothing was measured" in full.stderr, full
        nowhere = dict.fromkeys(("SHUNT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"), "")
        expect(shunt("tune", "-g", "2", "-e", "1K", **nowhere), 1, "no cache folder", "--table")
        assert [path.name for path in pathlib.Path(folder).iterdir()] == ["file"]
        table = f"{folder}/a/b/table.csv"
        expect(shunt("tune", "-g", "2", "-b", "1K", "-e", "1K", "--table", table), 0, f"# table: {table}\n")
        assert pathlib.Path(table).exists()


def tune_of_root():
    """Root with another user's home, as under sudo, writes no file there and reports that, unless it is told
    to by --table or SHUNT_CACHE_DIR."""
    if os.geteuid() != 0:
        print("skipped: not root")
        sys.exit(77)
    small = ("-g", "2", "-b", "1K", "-e", "1K", "--collective", "allreduce", "-d", "float")
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, 54321, 54321)
        theirs = {"SHUNT_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": home}
        elsewhere = {**theirs, "XDG_CACHE_HOME": f"{home}/cache", "HOME": "/root"}
        for variables in (theirs, elsewhere):
            done = expect(shunt("tune", *small, **variables), 1, "another user's, in which root leaves no file", "SHUNT_CACHE_DIR")
            assert len(done.stderr.splitlines()) == 1 and done.stdout == "" and os.listdir(home) == [], (done, os.listdir(home))
            done = expect(shunt(*PROGRAM, **variables, SHUNT_TUNE="1", SHUNT_DEBUG="info"), 0)
            assert "in which root leaves no note" in done.stderr and "so does the next" not in done.stderr, done.stderr
            assert os.listdir(home) == [], os.listdir(home)
        os.mkdir(f"{home}/.cache")  # an existing folder of root's
        expect(shunt("tune", *small, **theirs), 1, "another user's")
        expect(shunt("tune", *small, "--table", f"{home}/table.csv", **theirs), 0, "# table:")
        expect(shunt("tune", *small, **{**theirs, "SHUNT_CACHE_DIR": f"{home}/told"}), 0, f"# table: {home}/told/")
        os.chown(home, 0, 0)
        expect(shunt("tune", *small, **theirs), 0, f"# table: {home}/.cache/shunt/")
    # Root's table that another user cannot read, as after umask 077, is reported to that user; a closed folder is not.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        pathlib.Path(folder, NAME).write_text(HEAD % CPU + row())
        os.chmod(f"{folder}/{NAME}", 0o600)
        environment = dict(os.environ, SHUNT_CACHE_DIR=folder, SHUNT_TUNE="0")
        for mode, told in ((0o755, True), (0o700, False)):
            os.chmod(folder, mode)
            try:
                done = subprocess.run([SHUNT, *PROGRAM], env=environment, capture_output=True, text=True,
                                      preexec_fn=lambda: os.setuid(54321))
            except PermissionError:
                break  # the build folder is closed to other users
            assert done.returncode == 0 and (f"{folder}/{NAME}: Permission denied" in done.stderr) == told, done


def tune_diff():
    with tempfile.TemporaryDirectory() as folder:
        a, b = f"{folder}/a.csv", f"{folder}/b.csv"
        pathlib.Path(a).write_text(HEAD % "1" + row(end=100) + row(types="f4", start=101, end=200) +
                                   row(ranks=3))
        pathlib.Path(b).write_text(HEAD % "1" + row(end=100) + row(types="f4", start=151, end=200,
                                                                   grid="2,1") + row(ranks=3) +
                                   row(ranks=4, collective="scatter", types="i8", start=5, algorithm="nccl", grid="0,0"))
        expect(shunt("tune", "--diff", a, a), 0, "no difference")
        lines = expect(shunt("tune", "--diff", a, b), 0).stdout.splitlines()
        assert lines == ["allreduce 2 host-2 f4 101-150: twoshot:1x1, builtin",
                         "allreduce 2 host-2 f4 151-200: twoshot:1x1, twoshot:2x1",
                         "scatter 4 host-4 i8 5-: builtin, nccl"], lines
        expect(shunt("tune", "--diff", a, f"{folder}/none.csv"), 1, "none.csv: No such file")
        pathlib.Path(b).write_text("rubbish")
        expect(shunt("tune", "--diff", a, b), 1, "b.csv:1:1: expected")


def plotted(table):
    """A picture's texts with their positions, and its rectangles: (x, width, colour, title)."""
    picture = xml.etree.ElementTree.fromstring(expect(shunt("tune", "--plot", table), 0).stdout)
    name = "{http://www.w3.org/2000/svg}"
    texts = [(float(e.get("x")), float(e.get("y")), e.text) for e in picture.iter(f"{name}text")]
    bars = [(float(e.get("x", 0)), float(e.get("width")), e.get("fill"), "".join(e.itertext())) for e in picture.iter(f"{name}rect")]
    lines = sum(e.get("stroke") == "#444444" for e in picture.iter(f"{name}line"))
    return texts, bars, lines, float(picture.get("width")), float(picture.get("height"))


def plot_parts(folder):
    """A picture has a legend of its algorithms, no two of one colour; a number where a name does not fit; an
    axis of the measured sizes, with a mark for each."""
    table = f"{folder}/parts.csv"
    names = [f"algorithm{i}" for i in range(9)]
    ends = [1000 << i for i in range(10)]
    pathlib.Path(table).write_text(HEAD % "1" + "".join(
        row(types="f2", start=start + 1, end=end, algorithm=name) for name, start, end in zip(names, ends, ends[1:])))
    texts, bars, lines, width, height = plotted(table)
    said = [text for _, _, text in texts]
    assert said.count("the built-in choice") == 1 and all(said.count(name) in (1, 2) for name in names), said
    assert [str(i + 1) in said for i in range(9)] == [True] * 9, said
    wide = [bar for bar in bars if ": algorithm" in bar[3]]
    assert len({bar[2] for bar in wide}) == len(wide) == 9, wide
    assert all(0 <= x and x + w <= width for x, w, _, _ in bars) and all(y <= height for _, y, _ in texts), bars
    axis = [text for _, y, text in texts if y == 44]
    assert axis[0] == "512" and axis[-1] == "512K" and lines == 0, axis  # from the rows' ends
    times = "# shunt times 1\n# machine: 0000000000000001\ncollective,class,types,bytes,algorithm,us,nccl_us\n"
    times += "".join(f"allreduce,host-2,{kind},{size},oneshot,1.000,2.000\n" for kind in ("f2", "f4")
                     for size in (4096, 8192, 1 << 20))
    pathlib.Path(f"{table}.times").write_text(times)
    texts, bars, lines, width, _ = plotted(table)
    axis = [text for _, y, text in texts if y == 44]
    assert axis[0] == "4K" and axis[-1] == "2M" and lines == 3, (axis, lines)  # only of this lane's type
    # A narrow stretch has its algorithm's number.
    pathlib.Path(f"{table}.times").write_text(times.replace(",1048576,", ",1073741824,").replace(",4096,", ",512,"))
    texts, bars, *_ = plotted(table)
    said = [text for _, _, text in texts]
    assert said.count("algorithm3") == 1 and said.count("4") == 2, said
    os.unlink(f"{table}.times")
    os.unlink(table)


def tune_plot():
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table.csv"
        pathlib.Path(table).write_text(HEAD % "1" + row(types="f2+f4", end=65536, algorithm="oneshot") +
                                       row(types="f2", start=65537, end=1 << 30) + row(ranks=3, collective="gather"))
        picture = xml.etree.ElementTree.fromstring(expect(shunt("tune", "--plot", table), 0).stdout)
        said = [e.text for e in picture.iter() if e.text and e.text.strip()]
        assert [t for t in said if "host-" in t] == ["allreduce, host-2, f2", "allreduce, host-2, f4",
                                                    "gather, host-3, any"], said
        assert sum("oneshot 1 x 1" in t for t in said) == 2 and "builtin" in "".join(said), said
        plot_parts(folder)
        # Names are escaped, whatever characters they contain.
        strange = "host-2<script>&amp;\"x"
        pathlib.Path(table).write_text(HEAD % "1" + row(algorithm="<b>&").replace("host-2", strange))
        picture = xml.etree.ElementTree.fromstring(expect(shunt("tune", "--plot", table), 0).stdout)
        said = [e.text for e in picture.iter() if e.text and e.text.strip()]
        assert f"allreduce, {strange}, any" in said and "<b>&" in said and any("bytes: <b>& " in t for t in said), said
        expect(shunt("tune", "--plot", f"{folder}/none.csv"), 1, "none.csv: No such file")


def tune_usage():
    for arguments, word in ((("-b", "x"), "-b x"), (("-g", "1"), "-g 1"), (("-g", "9"), "-g 9"), (("-d", "int7"), "int7"),
                            (("-d", ""), "types"), (("--collective", "allgather,allsend"), "allsend"),
                            (("--collective", ","), "names"), (("--mode", "graph"), "graph"), (("--mode", "captured"), "GPU"),
                            (("--beside",), "GPU"), (("--json",), "--json"), (("--csv", "-", "--json", "-"), "cannot both"),
                            (("--json", "-", "--plot", "x"), "not for --diff or --plot"),
                            (("--limit", "0"), "--limit 0"), (("--table", ""), "--table"), (("--table", "--check"), "--table"),
                            (("--csv", "-g", "2"), "--csv"), (("--json", ""), "--json"),
                            (("--diff", "one"), "two tables"), (("extra",), "extra"),
                            (("--nothing",), "--nothing"), (("-e",), "-e"), (("-b", "1M", "-e", "1K"), "-b")):
        expect(shunt("tune", *arguments), 2, word)
    expect(shunt("tune", "--help"), 0, "usage: shunt tune")


if __name__ == "__main__":
    {case.__name__: case for case in (tables, tune, tune_json, tune_collectives, tune_check, tune_check_fails, tune_first,
                                      tune_first_ends, tune_first_fails, tune_stops, tune_named, tune_unwritable,
                                      tune_of_root, tune_diff, tune_plot, tune_usage)}[sys.argv[4]]()
