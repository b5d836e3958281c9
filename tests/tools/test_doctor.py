#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_doctor.py - `shunt doctor`, on the CPU device.

usage: test_doctor.py SHUNT PRELOADABLE_LIBRARY SOURCE_FOLDER CASE CLIENT STATIC FAKE_NCCL
"""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

from test_tools import LIMIT, SHUNT, expect, shunt

CLIENT, STATIC, FAKE = sys.argv[5:8]
# An address sanitizer's run time otherwise requires to be the first library of a process.
SANITIZED = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
LINGER = "2"  # seconds that a client sleeps, so that the doctor detects it


def see(status, *words, command=(), limit=str(LIMIT), **variables):
    """Run the doctor; check its exit status and that its lines contain these words."""
    arguments = ("--limit", limit, "--", *command) if command else ()
    done = shunt("doctor", *arguments, **SANITIZED, **variables)
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    for word in words:
        assert word in done.stdout, f"no {word!r} in\n{done.stdout}{done.stderr}"
    return done.stdout


def doctor():
    text = see(0, "ok     Shunt ", "note   no GPU is used", "ok     /dev/shm: ", "ok     64 KB all-reduces of 4 ranks are right")
    assert "fault" not in text and "\033" not in text, text
    expect(shunt("doctor", "--help"), 0, "usage: shunt doctor", "--limit S")
    for arguments, word in ((("-x",), "-x"), (("--limit",), "--limit"), (("--limit", "0"), "--limit 0"), (("--",), "--"),
                            (("true",), "behind --")):
        expect(shunt("doctor", *arguments), 2, word)


def doctor_machine():
    see(1, "fault  no library: SHUNT_LIB=/nowhere/lib.so", "what to do: set SHUNT_LIB", SHUNT_LIB="/nowhere/lib.so")
    see(1, "fault  SHUNT_ENABLE=0", "what to do: unset SHUNT_ENABLE", "SHUNT_ENABLE=0 (environment)", SHUNT_ENABLE="0")
    see(0, "note   SHUNT_STAT is no setting", "shunt settings", SHUNT_STAT="1", SHUNT_STATS="")
    expect(shunt("doctor", TMPDIR="/proc/none"), 1, "/proc/none/shunt-", "set TMPDIR")
    with tempfile.TemporaryDirectory() as folder:
        see(0, "no tuned table; rules for host-4 by: CPU device", SHUNT_CACHE_DIR=folder)
        table = f"{folder}/table-0000000000000000.csv"
        with open(table, "w", encoding="utf-8") as file:
            file.write("# shunt table 2\n# machine: 0000000000000000\n")
        see(0, f"ok     tuned table: {table}", SHUNT_CACHE_DIR=folder)
        see(0, "ok     tuned table: " + table, SHUNT_TABLE=table)
        assert os.listdir(folder) == [os.path.basename(table)]
        other = f"{folder}/other.csv"
        pathlib.Path(other).write_text("# shunt table 2\n# machine: 0000000000000abc\n", encoding="utf-8")
        for named, words in ((other, " was measured on another machine (0000000000000abc, this is 0000000000000000)"),
                             (f"{folder}/none.csv", ": No such file or directory"), ("/dev/null", ":1:1: expected")):
            text = see(1, f"fault  the tuned table is not used: {named}{words}", "what to do: unset SHUNT_TABLE", SHUNT_TABLE=named)
            assert "ok     tuned table" not in text and "no tuned table" not in text, text
        see(0, f"ok     tuned table: {other}", SHUNT_TABLE=other, SHUNT_TABLE_FORCE="1")
        pathlib.Path(table).write_text("no table", encoding="utf-8")
        see(1, f"fault  the tuned table is not used: {table}:1:1: expected", "run `shunt tune`", SHUNT_CACHE_DIR=folder)
    see(1, "fault  not allowed, so the default is used: SHUNT_ALGO=bogus (allowed: ", "what to do: correct or unset it",
        SHUNT_ALGO="bogus")
    see(0, "SHUNT_TUNE=0 (environment)", SHUNT_TUNE="0", SHUNT_PRIORITY="1", SHUNT_ALGO="oneshot")


def doctor_command():
    with tempfile.TemporaryDirectory() as folder:
        where = {"TMPDIR": folder}
        # Calls of each process are counted; the bench uses the most frequent size.
        see(0, "tools_client ran to its end", "ok     taken: 20 calls, forwarded 0, in 2 processes", "ok     8 KB all-reduces",
            command=(CLIENT, "libnccl.so.2", "2", "2048", "10"), **where)
        # Processes that open NCCL by its path, with and without the preload, have it linked statically, or have none.
        see(1, f"opened {os.path.realpath(FAKE)} by its path", "shunt run --audit -- CMD",
            command=(CLIENT, FAKE, "0", "0", "0", LINGER), **where)
        see(1, f"loaded {os.path.realpath(FAKE)}: it was started without", "behind its launcher",
            command=("env", "-u", "LD_PRELOAD", CLIENT, FAKE, "0", "0", "0", LINGER), **where)
        see(1, f"{STATIC} (process tools_static) has NCCL linked into it", "take a build", command=(STATIC,), **where)
        see(1, "no process made a communicator", command=("sleep", LINGER), **where)
        # A command that fails, does not exist, or does not end.
        see(1, "sh ended with exit status 3; its last lines:", "| two\n", command=("sh", "-c", "echo one; echo two; exit 3"), **where)
        see(1, "ended with exit status 127", command=("/nowhere/program",), **where)
        text = see(1, "was ended after", command=(CLIENT, "libnccl.so.2", "0", "0", "0", str(LIMIT)), limit="1", **where)
        assert "exit status" not in text, text
        assert os.listdir(folder) == [], os.listdir(folder)


NAMES = {"complete", "faults", "error", "shunt", "library", "nccl", "nccl_path", "device", "gpu_count", "class", "machine",
         "checks", "output", "calls", "bench"}


def found(status, *arguments, **variables):
    """The doctor's findings from its JSON, which has a check for each line of the text."""
    done = shunt("doctor", "--json", "-", *arguments, **SANITIZED, **variables)
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    report = json.loads(done.stdout)
    lines = done.stderr.splitlines()
    assert report.keys() == NAMES and report["complete"], report
    assert report["faults"] == sum(check["level"] == "fault" for check in report["checks"]), report
    for check in report["checks"]:
        assert f"{check['level']:<5}  {check['text']}" in lines, (check, lines)
        assert check["what_to_do"] is None or f"       what to do: {check['what_to_do']}" in lines, (check, lines)
    return report, {check["check"] for check in report["checks"]}


def doctor_json():
    """The JSON has the text's facts, also without a library, with a command that fails, and if a signal ends the
    doctor."""
    report, checks = found(0)
    assert {"library", "gpus", "shared_memory", "bench"} <= checks, checks
    assert report["faults"] == 0 and report["device"] == "cpu" and report["class"] == "host-4", report
    assert f"Shunt {report['shunt']}, {report['library']}" == report["checks"][0]["text"], report
    assert report["calls"] is None and report["output"] == [] and report["bench"]["wrong"] == 0, report
    report, checks = found(1, SHUNT_LIB="/nowhere/lib.so")
    assert checks == {"library"} and "/nowhere/lib.so" in report["error"], report
    assert report["shunt"] is report["library"] is report["device"] is report["bench"] is None, report
    report, checks = found(1, SHUNT_TABLE="/nowhere/table.csv")
    assert [check["check"] for check in report["checks"] if check["level"] == "fault"] == ["table"], report
    report, checks = found(0, "--", CLIENT, "libnccl.so.2", "2", "2048", "10")
    assert report["calls"] == {"processes": 2, "taken": 20, "forwarded": 0}, report
    assert report["bench"]["bytes"] == 8192 and {"command", "calls", "bench"} <= checks, report
    report, checks = found(1, "--", "sh", "-c", "seq 9; printf 'a\\377\"\\n'; exit 3")
    assert report["output"] == [*"3456789", 'a\ufffd"'] and {"command", "communicators"} <= checks, report
    with tempfile.TemporaryDirectory() as folder:
        path, ready = (pathlib.Path(folder, name) for name in ("doctor.json", "ready"))
        done = subprocess.Popen([SHUNT, "doctor", "--json", path, "--", "sh", "-c", f"echo >{ready}; exec sleep 777"],
                                env=dict(os.environ, **SANITIZED), stdout=subprocess.DEVNULL)
        while not ready.exists():
            time.sleep(0.02)
        done.send_signal(signal.SIGTERM)
        assert done.wait(LIMIT) == -signal.SIGTERM, done.returncode
        report = json.loads(path.read_text())
        assert report.keys() == NAMES and not report["complete"] and report["checks"], report
    expect(shunt("doctor", "--json", "/nowhere/file.json"), 1, "/nowhere/file.json: No such file")
    expect(shunt("doctor", "--json", "/dev/full", SHUNT_LIB="/nowhere/lib.so"), 1, "could not be written whole")
    for arguments in (("--json",), ("--json", "--", "true")):
        expect(shunt("doctor", *arguments), 2, "--json")


def lives(pid):
    """Whether a process lives. A zombie does not; its new parent may not reap it at once."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def doctor_leaves_nothing():
    """The doctor ends processes that the command leaves; if a signal ends the doctor, it ends all and removes
    the folder."""
    with tempfile.TemporaryDirectory() as folder:
        where = {"TMPDIR": f"{folder}/tmp"}
        os.mkdir(where["TMPDIR"])
        file = pathlib.Path(folder, "pid")
        # Uses job control, since a shell's background processes otherwise ignore SIGINT.
        see(1, "ran to its end", command=("bash", "-c", f"set -m; sleep 777 & echo $! >{file}"), **where)
        assert not lives(int(file.read_text()))
        for sent in (signal.SIGTERM, signal.SIGHUP):
            file.unlink()
            done = subprocess.Popen([SHUNT, "doctor", "--", "sh", "-c", f"echo $$ >{file}.new; mv {file}.new {file}; exec sleep 777"],
                                    env=dict(os.environ, **SANITIZED, **where), stdout=subprocess.DEVNULL)
            while not file.exists():
                time.sleep(0.02)
            done.send_signal(sent)
            assert done.wait(LIMIT) == -sent, done.returncode
            assert not lives(int(file.read_text()))
            assert os.listdir(where["TMPDIR"]) == [], os.listdir(where["TMPDIR"])


def doctor_colours():
    """Colours are used on a terminal, but not on a dumb one, nor with NO_COLOR."""
    for term, no_color, coloured in (("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            print(f"SKIP: no terminal to try it with: {error}")
            sys.exit(77)
        environment = dict(os.environ, SHUNT_CACHE_DIR="/nowhere", SHUNT_LIB="/nowhere/lib.so", TERM=term, NO_COLOR=no_color)
        done = subprocess.run([SHUNT, "doctor"], env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        os.close(theirs)
        text = os.read(ours, 4096).decode()
        os.close(ours)
        assert done.returncode == 1 and "fault" in text, (done, text)
        assert ("\033[1;31mfault\033[0m" in text) == coloured and ("\033" in text) == coloured, text


if __name__ == "__main__":
    {case.__name__: case for case in (doctor, doctor_machine, doctor_command, doctor_json, doctor_leaves_nothing,
                                      doctor_colours)}[sys.argv[4]]()
