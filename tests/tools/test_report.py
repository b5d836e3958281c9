#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_report.py - `shunt run --report`, on the CPU device.

usage: test_report.py SHUNT PRELOADABLE_LIBRARY SOURCE_FOLDER CASE CLIENT
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from test_tools import LIMIT, SHUNT, expect, shunt

CLIENT = sys.argv[5]
# An address sanitizer's run time otherwise requires to be the first library of a process.
SANITIZED = {"ASAN_OPTIONS": "verify_asan_link_order=0"}


def run(*command, **variables):
    return shunt("run", "--report", "--", *command, **SANITIZED, **variables)


def report():
    """The report counts all processes' calls and claims a saving only for measured sizes; the status is CMD's;
    no files remain."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/tmp")
        where = {"TMPDIR": f"{folder}/tmp", "SHUNT_CACHE_DIR": folder}
        client = (CLIENT, "libnccl.so.2", "2", "16384", "5")
        done = run(*client, **where)
        assert done.returncode == 0 and done.stdout == "", (done.returncode, done.stdout, done.stderr)
        rows = [line.split() for line in done.stderr.splitlines() if line.startswith("  allreduce")]
        assert [row[1:6] for row in rows] == [["64K-128K", "10", "-", "-", "-"]], done.stderr
        assert "10 calls taken, 0 forwarded, by 2 processes" in done.stderr, done.stderr
        assert "not known: `shunt tune` has not measured this machine" in done.stderr, done.stderr
        algorithm = rows[0][6]

        times = pathlib.Path(folder, "table-0000000000000000.csv.times")
        text = "# shunt times 1\n# machine: 0000000000000000\ncollective,class,types,bytes,algorithm,us,nccl_us\n"
        times.write_text(text + f"allreduce,host-2,f4,65536,{algorithm},10.000,12.500\n")
        done = run(*client, **where)
        rows = [line.split() for line in done.stderr.splitlines() if line.startswith("  allreduce")]
        assert [row[1:8] for row in rows] == [["64K-128K", "10", "-", "2.50", "us", "25.00", "us"]], done.stderr
        assert "saved 25.00 us of GPU time" in done.stderr, done.stderr
        # Measurements of another type, number of ranks, or algorithm do not count.
        for row in (f"allreduce,host-2,f2,65536,{algorithm}", f"allreduce,host-4,f4,65536,{algorithm}",
                    "allreduce,host-2,f4,65536,other", f"allreduce,host-2,f4,32768,{algorithm}"):
            times.write_text(text + row + ",10.000,12.500\n")
            done = run(*client, **where)
            assert "saved 0.00 us of GPU time" in done.stderr and "measured 0 of the 10" in done.stderr, done.stderr
        # The times of a table in SHUNT_TABLE are beside it.
        times.rename(f"{folder}/named.csv.times")
        done = run(*client, SHUNT_TABLE=f"{folder}/named.csv", **where)
        assert "measured 0 of the 10" in done.stderr, done.stderr

        report_json(client, folder, where)

        # The report names the gain for a pinned program, which `--deterministic` achieves.
        done = run(*client, NCCL_MAX_NCHANNELS="1", **where)
        assert "shunt: NCCL_MAX_NCHANNELS pins NCCL" in done.stderr, done.stderr
        done = shunt("run", "--report", "--deterministic", *client, NCCL_MAX_NCHANNELS="1", **SANITIZED, **where)
        assert done.returncode == 0 and "pins NCCL" not in done.stderr, done.stderr
        done = shunt("run", "--deterministic", "--", "sh", "-c", "echo $SHUNT_DETERMINISTIC", SHUNT_DETERMINISTIC="0",
                     **SANITIZED)
        assert done.stdout == "1\n", done

        done = run("sh", "-c", "exit 7", **where)
        assert done.returncode == 7 and "no process made a call" in done.stderr, done.stderr
        assert run("/nowhere/program", **where).returncode == 127
        done = run("true", SHUNT_STATS="1", **where)
        assert "takes the place of SHUNT_STATS=1" in done.stderr, done.stderr
        assert os.listdir(f"{folder}/tmp") == [], os.listdir(f"{folder}/tmp")
        expect(shunt("run", "--report", "true", TMPDIR="/nowhere/here"), 1, "/nowhere/here")


def report_bench():
    """The ranks of `shunt bench` and `shunt tune` leave their counts, too."""
    small = ("-g", "2", "-b", "1K", "-e", "4K", "-f", "4")
    done = run(SHUNT, "bench", *small, "-n", "3", "-w", "0", "--rounds", "1")
    rows = [line.split() for line in done.stderr.splitlines() if line.startswith("  allreduce")]
    assert done.returncode == 0 and "Avg bus bandwidth" in done.stdout, done
    assert [row[1] for row in rows] == ["1K-2K", "4K-8K"] and all(int(row[2]) >= 6 for row in rows), done.stderr
    assert "0 forwarded, by 2 processes" in done.stderr, done.stderr
    with tempfile.TemporaryDirectory() as folder:
        done = run(SHUNT, "tune", "-g", "2", "-b", "1K", "-e", "1K", "--collective", "allreduce", "-d", "float", "--table",
                   f"{folder}/table.csv")
    assert done.returncode == 0 and "0 forwarded, by 2 processes" in done.stderr, done


def report_waits():
    """The report names the rank for which the others wait, how often and how long. (calls_waits: nobody, if none is late;
    on a busy machine some rank always is.)"""
    late, calls, ranks = 3, 10, 4
    client = (CLIENT, "libnccl.so.2", str(ranks), "1024", str(calls), "0")
    for _ in range(5): # until the machine was idle enough: on a busy one other ranks are late, too
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/report.json"
            done = shunt("run", "--report", "--json", file, "--", *client, "late", **SANITIZED)
            told = json.loads(pathlib.Path(file).read_text())["waits"]
        if all(row["waited_us"] < told[0]["waited_us"] / 2 for row in told[1:]):
            break
    lines = done.stderr.partition("shunt: late ranks: ")[2].splitlines()
    assert done.returncode == 0 and len(lines) == 2 + len(told), done.stderr
    first = told[0]
    assert lines[2].split()[:5] == [first["communicator"], str(late), "of", str(ranks), str(first["waits"])], lines
    # Each wait is 100 ms, minus unseen parts at both ends.
    assert first["rank"] == late and first["ranks"] == ranks, told
    assert (ranks - 1) * calls / 2 <= first["waits"] <= (ranks - 1) * calls, told
    assert first["waited_us"] >= 50000 * first["waits"], told
    assert sum(length["waits"] for length in first["lengths"]) == first["waits"], told
    assert max(length["from_ms"] for length in first["lengths"]) >= 64, told
    assert all(row["waited_us"] < first["waited_us"] / 2 for row in told[1:]), told
    assert "late ranks" not in run(*client, "late", SHUNT_RECORD="0").stderr


def report_json(client, folder, where):
    """The JSON has the report's facts, in a file or after the command's output, also for a command without
    calls."""
    file = f"{folder}/report.json"
    done = shunt("run", "--report", "--json", file, "--", *client, SHUNT_TABLE=f"{folder}/named.csv", **SANITIZED, **where)
    assert done.returncode == 0 and "10 calls taken" in done.stderr, done.stderr
    told = json.loads(pathlib.Path(file).read_text())
    assert (told["status"], told["complete"], told["processes"], told["taken"], told["forwarded"]) == (0, True, 2, 10, 0), told
    (row,) = told["rows"]
    assert row["algorithm"] in done.stderr and row.pop("algorithm"), row
    assert row == {"collective": "allreduce", "bytes_each": "64K-128K", "calls": 10, "bytes": 655360, "taken": True,
                   "reason": None, "captured": False, "measured_calls": 0, "saved_us": None}, row
    assert told["saved_us"] is told["replay_saved_us"] is told["pinned"] is None, told
    algorithm = json.loads(pathlib.Path(file).read_text())["rows"][0]["algorithm"]
    times = pathlib.Path(folder, "named.csv.times")
    head = times.read_text().split("allreduce")[0]
    times.write_text(f"{head}allreduce,host-2,f4,65536,{algorithm},10.000,12.500\n")
    expect(shunt("run", "--report", "--json", file, *client, SHUNT_TABLE=f"{folder}/named.csv", **SANITIZED, **where), 0)
    told = json.loads(pathlib.Path(file).read_text())
    assert told["saved_us"] == told["rows"][0]["saved_us"] == 25 and told["rows"][0]["measured_calls"] == 10, told
    done = shunt("run", "--report", "--json", "-", "sh", "-c", "echo said; exit 7", **SANITIZED, **where)
    said, _, text = done.stdout.partition("\n")
    none = json.loads(text)
    assert done.returncode == none.pop("status") == 7 and said == "said" and none.pop("complete"), done
    assert none.keys() | {"status", "complete"} == told.keys() and not any(none.values()), none
    expect(shunt("run", "--report", "--json", "/nowhere/file.json", "touch", f"{folder}/ran", **where), 1,
           "/nowhere/file.json: No such file")
    assert not os.path.exists(f"{folder}/ran") and os.listdir(where["TMPDIR"]) == []
    done = shunt("run", "--report", "--json", "/dev/full", "--", "true", **SANITIZED, **where)
    assert done.returncode == 0 and "could not be written whole" in done.stderr, done.stderr
    expect(shunt("run", "--report", "--json", "--", "true"), 2, "--json")
    expect(shunt("run", "--json", file, "true"), 2, "--json goes with --report")


def report_signals():
    """A signal to `shunt run` alone reaches the command; a signal that kills the command is in the status; no
    folder remains."""
    done = run("sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL, done.returncode
    passed = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGALRM,
              signal.SIGRTMIN + 3]
    hear = ("import signal, sys\n"
            "heard = [int(number) for number in sys.argv[1:]]\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, heard)\n"
            "print('ready', flush=True)\n"
            f"while True: print(signal.sigtimedwait(heard, {LIMIT}).si_signo, flush=True)\n")
    with tempfile.TemporaryDirectory() as folder:
        ready = f"{folder}/ready"
        parent = subprocess.Popen([SHUNT, "run", "--report", "--", sys.executable, "-S", "-c",
                                   f"import time; open({ready!r}, 'w'); time.sleep({LIMIT})"],
                                  env=dict(os.environ, **SANITIZED), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not os.path.exists(ready):
            time.sleep(0.05)
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=LIMIT)
        assert parent.returncode == 128 + signal.SIGTERM, parent.returncode
        os.mkdir(f"{folder}/tmp")
        for last in (signal.SIGTERM, signal.SIGUSR1):  # SIGUSR1 ends a command that has no handler for it
            heard = [number for number in passed if number != last]
            parent = subprocess.Popen([SHUNT, "run", "--report", "--", sys.executable, "-S", "-c", hear,
                                       *map(str, map(int, heard))], env=dict(os.environ, TMPDIR=f"{folder}/tmp", **SANITIZED),
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert parent.stdout.readline() == "ready\n"
            for number in heard:
                parent.send_signal(number)
                assert parent.stdout.readline() == f"{int(number)}\n", (number, parent.communicate(timeout=LIMIT))
            parent.send_signal(last)
            said = parent.communicate(timeout=LIMIT)
            assert parent.returncode == 128 + last and "no process made a call" in said[1], (parent.returncode, said)
            assert os.listdir(f"{folder}/tmp") == []
        reading, writing = os.pipe()
        os.close(reading)  # the report's pipe has no reader
        subprocess.run([SHUNT, "run", "--report", "true"], env=dict(os.environ, TMPDIR=f"{folder}/tmp", **SANITIZED),
                       stderr=writing, timeout=LIMIT, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        assert os.listdir(f"{folder}/tmp") == []


if __name__ == "__main__":
    {case.__name__: case for case in (report, report_bench, report_signals, report_waits)}[sys.argv[4]]()
