#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own NCCL test files, each test with Shunt and without: the outcomes must be the same.

Needs two GPUs, PyTorch with CUDA, expecttest, and in PYTORCH_TESTS the folder `test` of PyTorch's source, which wheels
do not ship; that of another version works if it can be imported. Tests run as `python FILE Class.test Class.other`
would, some of a class in turn, without and with Shunt; --jobs of such runs share the GPUs. Each test has its own ranks,
forked from a server that has imported torch (forked.py), except in classes that keep their ranks between tests: these
run as a whole. An outcome is passed, skipped and why, failed, or timed out. Tests that differ or did not end are run
again, each alone, and a difference counts if it appears twice more; differences that did not are listed at the end,
too. Tests of calls that Shunt serves come first; tests beyond --seconds, the limit of all, are listed. --only takes
prefixes of FILE.Class.test. The last line is `N passed, N failed`.
"""

import collections
import concurrent.futures
import importlib.metadata
import importlib.util
import os
import re
import runpy
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import client
import forked

SELF = str(Path(__file__).resolve())
FILES = ("test_c10d_ops_nccl.py", "test_c10d_functional_native.py", "test_functional_api.py", "test_c10d_nccl.py",
         "test_c10d_spawn_nccl.py", "fsdp/test_fsdp_core.py", "_composable/fsdp/test_fully_shard_training.py",
         "_composable/fsdp/test_fully_shard_comm.py", "fsdp/test_fsdp_misc.py", "test_c10d_object_collectives.py")
# Patterns of FILE.Class.test; among the tests of one pattern the classes alternate.
FIRST = ("test_c10d_ops_nccl", "all_?reduce", "^(?!.*Trace)", "")
LATE = re.compile("Large|CPU")  # tests that need four GPUs or more, or use gloo
# Tests of NVLink multicast, which stays off, and of kernels that trap, which look like faults of a shared GPU.
LEFT_OUT = re.compile("UserBufferRegistration|AllocFromPG|symm_mem|multicast|nan_assert")
OUTCOMES = {"addSuccess": "passed", "addExpectedFailure": "passed", "addUnexpectedSuccess": "failed",
            "addFailure": "failed", "addError": "failed", "addSubTest": "failed", "addSkip": "skipped"}
IMPORT = 90  # limit in seconds to import a file and list its tests
TAIL = 2000  # characters of the output that are shown for a test that differs
TOGETHER = 6  # most tests of a class in one run
EACH = 15  # seconds added to the limit for each further test of a run


# ---- In the processes that run a file ----

def kind(case):
    names = {base.__name__ for base in type(case).__mro__}
    return "stays" if "MultiProcContinuousTest" in names else "ranks" if "MultiProcessTestCase" in names else "alone"


def name_of(case):
    return f"{type(case).__name__}.{getattr(case, '_testMethodName', '')}"


def cases(suite):
    for case in suite:
        yield from cases(case) if isinstance(case, unittest.TestSuite) else (case,)


def list_tests(file):
    spec = importlib.util.spec_from_file_location("listed", file)
    module = sys.modules["listed"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a file exits if it cannot run
        client.skip(f"{type(error).__name__}: {error}")
    found = {name_of(case): kind(case) for case in cases(unittest.defaultTestLoader.loadTestsFromModule(module))}
    client.report(found) if found else client.skip("none for these devices")


def telling(word, original):
    def method(result, case, *details):
        original(result, case, *details)
        why = details[-1] if details else ""
        if why is not None:  # `why` is None for a subtest that passed
            print()  # ends the line of dots
            client.report({name_of(case): [word, why if isinstance(why, str) else cause(why[1])]})
    return method


def named(text):
    """The first line that names an error: the errors of a test's ranks arrive as text."""
    found = re.search(r"^\s*([\w.]*(Error|Exception): .{0,200})", text, re.MULTILINE)
    return found[1] if found else ""


def cause(error):
    return named(str(error)) or f"{type(error).__name__}: {str(error).strip()[:200].partition(chr(10))[0]}"


def worker(file, tests):
    sys.path[:] = [os.path.dirname(file), *sys.path[1:], os.path.dirname(SELF)]
    os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
    os.environ.pop("CI", None)  # the files would write reports, which needs an extra package
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "0"  # otherwise each import compiles C++ to test the CPU's features
    if not tests:
        list_tests(file)
        return
    for method, word in OUTCOMES.items():
        setattr(unittest.TextTestResult, method, telling(word, getattr(unittest.TextTestResult, method)))
    forked.instead_of_spawned()
    sys.argv = [file, *tests]
    runpy.run_path(file, run_name="__main__")


# ---- In the comparing process ----

class TimeIsUp(Exception):
    pass


class Outcomes:
    """The outcomes of one run's tests."""

    def __init__(self, file, tests, limit, end, preload):
        limit += EACH * (len(tests) - 1)
        left = end - time.monotonic()
        if left <= 0:
            raise TimeIsUp
        run = client.Run([sys.executable, SELF, "--worker", file, *tests], min(limit, left), preload)
        hung = run.status == 124
        if hung and left < limit:
            raise TimeIsUp
        self.text, self.taken, self.forwarded = run.text, run.taken or 0, run.forwarded or 0
        self.found = run.results()
        if len(tests) == 1 and hung:
            self.found = {tests[0]: ["timed out", f"after {limit} s"]}
        elif len(tests) == 1:
            self.found.setdefault(tests[0], ["failed", f"status {run.status} {named(run.text)}"])

    def word(self, test):
        """The part of an outcome that must be the same in both runs; empty if the run ended before the test."""
        word, why = self.found.get(test, ("", ""))
        return f"skipped: {why}" if word == "skipped" else word

    def line(self, test):
        word, why = self.found[test]
        return f"{word}: {' '.join(why.split())}" if why and word != "passed" else word


class Comparison:
    def __init__(self, options, shunt, todo, end):
        self.options, self.shunt, self.todo, self.end = options, shunt, collections.deque(todo), end
        self.verdict, self.lock = client.Verdict(), threading.Lock()
        self.words = collections.Counter()  # counts of the outcomes without Shunt
        self.taken, self.forwarded, self.runs, self.runs_taken = 0, 0, 0, 0
        self.cut_off = []
        self.once = []  # tests that differed in the first run: each counts as a fault until it is explained

    def both(self, file, tests):
        plain, shunt = (Outcomes(file, tests, self.options.limit, self.end, preload) for preload in (None, self.shunt))
        with self.lock:
            self.taken, self.forwarded = self.taken + shunt.taken, self.forwarded + shunt.forwarded
            self.runs, self.runs_taken = self.runs + 1, self.runs_taken + bool(shunt.taken)
        return plain, shunt

    def settle(self, file, test, plain, shunt, note=""):
        name = f"{Path(file).stem}.{test}"
        good = plain.word(test) == shunt.word(test)
        with self.lock:
            self.words[plain.found[test][0]] += 1
            if good:
                print(f"{name}: {shunt.line(test)}{note}", flush=True)
            self.verdict.check(good, f"{name}: {shunt.line(test)}, plain {plain.line(test)}{note}\n"
                                     f"{shunt.text[-TAIL:]}")

    def note_first(self, file, tests, plain, shunt):
        """Record the differences of a first run in tests that both runs reached."""
        with self.lock:
            self.once += [f"{Path(file).stem}.{test}: {shunt.line(test)}, plain {plain.line(test)}" for test in tests
                          if plain.word(test) and shunt.word(test) and plain.word(test) != shunt.word(test)]

    def several(self, file, tests):
        """Run tests in one process, then those without an outcome one by one."""
        plain, shunt = self.both(file, tests)
        settled = [test for test in tests if plain.word(test) and plain.word(test) == shunt.word(test)]
        for test in settled:
            self.settle(file, test, plain, shunt)
        again = [test for test in tests if test not in settled]
        self.note_first(file, again, plain, shunt)
        if again:
            print(f"note: {', '.join(again)}: not alike, or not ended, beside others; made again, each alone")
        self.todo.extendleft((file, (test,)) for test in reversed(again))

    def one(self, file, test):
        plain, shunt = self.both(file, (test,))
        note = ""
        if plain.word(test) != shunt.word(test):
            first = f"{shunt.line(test)}, plain {plain.line(test)}"
            note = f" (made again, for it was {first})"
            self.note_first(file, (test,), plain, shunt)
            try:
                plain, shunt = self.both(file, (test,))
            except TimeIsUp:
                print(f"note: {Path(file).stem}.{test}: {first}; the time was up for making it again")
                raise
        self.settle(file, test, plain, shunt, note)

    def work(self):
        while True:
            try:
                file, tests = self.todo.popleft()
            except IndexError:
                return
            try:
                if len(tests) > 1:
                    self.several(file, tests)
                else:
                    self.one(file, tests[0])
            except TimeIsUp:
                self.cut_off.extend(tests)

    def run(self):
        tests = sum(len(tests) for _, tests in self.todo)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for job in [pool.submit(self.work) for _ in range(self.options.jobs)]:
                job.result()
        print(f"{tests - len(self.cut_off)} of {tests} tests made both ways, {len(self.cut_off)} not reached within "
              f"{self.options.seconds} s; plain: {', '.join(f'{n} {word}' for word, n in self.words.items())}")
        print(f"taken {self.taken}, forwarded {self.forwarded}; "
              f"Shunt took calls in {self.runs_taken} of {self.runs} runs")
        print("\n".join([f"{len(self.once)} times the outcomes differed at first", *self.once]))
        self.verdict.check(self.taken, "Shunt took no call")
        self.verdict.end()


def ordered(options, tests_of):
    """Tuples of a file and the tests that share a run."""
    groups = collections.defaultdict(list)
    for place, (file, kinds) in enumerate(tests_of.items()):
        for test, kind_of_it in kinds.items():
            name = f"{Path(file).stem}.{test}"
            if not client.wanted(options, name) or LEFT_OUT.search(name):
                continue
            late = kind_of_it == "alone" or bool(LATE.search(name))  # "alone": a test without NCCL ranks
            rank = next(i for i, words in enumerate(FIRST) if re.search(words, name))
            whole = kind_of_it == "stays"
            groups[late, 0 if whole else rank, place, test.split(".")[0], whole].append(test)
    turns = [(late, rank, turn, place, name, tests[turn:turn + together])
             for (late, rank, place, name, whole), tests in groups.items()
             for together in [len(tests) if whole else TOGETHER] for turn in range(0, len(tests), together)]
    files = list(tests_of)
    return [(files[place], tuple(tests)) for _, _, _, place, _, tests in sorted(turns)]


def listed(options, folder):
    """The tests of each file that this PyTorch can import."""
    files = [str(folder / "distributed" / file) for file in FILES]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(lambda file: client.Run([sys.executable, SELF, "--worker", file], IMPORT), files)
    found = {}
    for file, run in zip(files, runs):
        if run.results():
            found[file] = run.results()
        else:
            print(f"note: {Path(file).name} has no tests here: {(run.lines('SKIP ') or [run.text[-200:]])[0]}")
    return found


def missing(options):
    if not os.environ.get("PYTORCH_TESTS"):
        return "PYTORCH_TESTS does not name the folder `test` of PyTorch's source"
    if (options.gpus or client.gpus_here()) < 2:
        return "two GPUs are needed"
    absent = [name for name in ("torch", "expecttest") if importlib.util.find_spec(name) is None]
    return f"Python has no {absent[0]}" if absent else None


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.set_defaults(seconds=480)
    p.add_argument("--limit", type=int, default=60, help="seconds of one test")
    p.add_argument("--jobs", type=int, default=4, help="runs at once, on the same GPUs")
    p.add_argument("--worker", nargs="+", help="a file, whose tests are listed, or those of them to run")
    options = p.parse_args()
    if options.worker:
        worker(options.worker[0], options.worker[1:])
        return
    why = missing(options)
    if why:
        print(f"SKIP: {why}")
        sys.exit(77)
    if options.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in range(options.gpus))
    end = time.monotonic() + options.seconds
    folder, shunt = Path(os.environ["PYTORCH_TESTS"]).resolve(), client.library(options)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # tests may leave files
        os.environ["TMPDIR"] = scratch
        os.chdir(scratch)
        version = folder.parent / "version.txt"
        print(f"tests of PyTorch {version.read_text().strip() if version.exists() else 'of a version unknown'}, "
              f"installed: {importlib.metadata.version('torch')}")
        todo = ordered(options, listed(options, folder))
        if not todo:
            print("SKIP: no test can be run")
            sys.exit(77)
        Comparison(options, shunt, todo, end).run()


if __name__ == "__main__":
    main()
