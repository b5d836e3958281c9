#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_audit.py - libshunt_audit.so, used by a program.

usage: test_audit.py CLIENT LINKED_CLIENT SHUNT_LIBRARY AUDIT_LIBRARY FAKE_NCCL SHUNT_COMMAND

The client opens an NCCL by an absolute path; a fake plays the real one. The
version is the fake's in any case: with Shunt in between it came through Shunt,
which must have opened the fake although the audit library watches every open.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CLIENT, LINKED, SHUNT, AUDIT, FAKE, COMMAND = sys.argv[1:]
VERSION = "23199"


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNT_", "LD_"))}
    environment.update({"SHUNT_DEVICE": "cuda", "SHUNT_NCCL_PATH": FAKE, **variables})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command} {variables}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def expect(who, loaded, *command, **variables):
    done = run(*command, **variables)
    assert done.stdout.split() == [who, VERSION, str(loaded)], (command, variables, done.stdout, done.stderr)
    return done


def choices():
    """An NCCL that the user chose for vLLM or SGLang becomes the real one, or a line reports why not."""
    def expect_real(real, *lines, **variables):
        done = run(COMMAND, "run", "sh", "-c", "echo $SHUNT_NCCL_PATH; echo $VLLM_NCCL_SO_PATH; echo $SGLANG_NCCL_SO_PATH",
                   **variables)
        assert done.stdout.splitlines() == [real, os.path.realpath(SHUNT), os.path.realpath(SHUNT)], (variables, done.stdout)
        assert [line.split("=")[0] for line in done.stderr.splitlines()] == [f"shunt run: {line}" for line in lines], done.stderr
        return done.stderr

    with tempfile.TemporaryDirectory() as folder:
        other = shutil.copy(FAKE, os.path.join(folder, "libnccl-own.so"))
        expect_real("", SHUNT_NCCL_PATH="")
        said = expect_real(other, "VLLM_NCCL_SO_PATH", VLLM_NCCL_SO_PATH=other, SHUNT_NCCL_PATH="")
        assert "forwards to it" in said, said
        expect_real(other, "SGLANG_NCCL_SO_PATH", SGLANG_NCCL_SO_PATH=other, SHUNT_NCCL_PATH="")
        expect_real(other, "VLLM_NCCL_SO_PATH", VLLM_NCCL_SO_PATH=other, SGLANG_NCCL_SO_PATH=other, SHUNT_NCCL_PATH="")
        said = expect_real(FAKE, "VLLM_NCCL_SO_PATH", VLLM_NCCL_SO_PATH=other, SHUNT_NCCL_PATH=FAKE)
        assert "forwards to SHUNT_NCCL_PATH" in said, said
        said = expect_real("", "VLLM_NCCL_SO_PATH", VLLM_NCCL_SO_PATH="/nowhere/nccl.so", SHUNT_NCCL_PATH="")
        assert "No such file" in said, said
        expect_real("", VLLM_NCCL_SO_PATH=os.path.realpath(SHUNT), SHUNT_NCCL_PATH="")  # set by an outer `shunt run`


def main():
    with tempfile.TemporaryDirectory() as folder:
        old_name = shutil.copy(FAKE, os.path.join(folder, "libnccl.so"))
        other = shutil.copy(FAKE, os.path.join(folder, "libnccl-net.so"))
        alone = shutil.copy(AUDIT, os.path.join(folder, "libshunt_audit.so"))
        for path in (FAKE, old_name):
            expect("plain", 1, CLIENT, path)
            expect("plain", 2, CLIENT, path, LD_PRELOAD=SHUNT)  # a preload has no effect on an absolute path
            expect("shunt", 2, CLIENT, path, LD_AUDIT=AUDIT)
            expect("shunt", 2, COMMAND, "run", "--audit", "--", CLIENT, path, SHUNT_LIB=SHUNT)
        # The audit library alone is enough for a program that opens NCCL by name or links it.
        expect("shunt", 2, CLIENT, "libnccl.so.2", LD_AUDIT=AUDIT)
        expect("plain", 1, LINKED, FAKE)
        expect("shunt", 2, LINKED, FAKE, LD_AUDIT=AUDIT)
        # A library with a similar name is not replaced.
        run(CLIENT, other, LD_AUDIT=AUDIT)
        assert run(CLIENT, other, LD_AUDIT=AUDIT).stdout.startswith("plain")
        # SHUNT_LIB names Shunt; then a wrong file.
        expect("shunt", 2, CLIENT, FAKE, LD_AUDIT=alone, SHUNT_LIB=SHUNT)
        os.remove(old_name)
        done = expect("plain", 1, CLIENT, FAKE, LD_AUDIT=alone)
        assert done.stderr.count("\n") == 1 and "SHUNT_LIB" in done.stderr, done.stderr
        done = expect("plain", 1, CLIENT, FAKE, LD_AUDIT=AUDIT, SHUNT_LIB="/nowhere/libnccl.so.2")
        assert done.stderr.count("\n") == 1, done.stderr
        # Under another Shunt's audit, the inner command uses the inner library, whichever audit library was set last.
        inner = {name: pathlib.Path(folder, "inner", name) for name in ("bin/shunt", "lib/libnccl.so.2", "lib/libshunt_audit.so")}
        for path, source in zip(inner.values(), (COMMAND, SHUNT, AUDIT)):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
        show = ("import ctypes, os; at = ctypes.cast(ctypes.CDLL(os.environ['SHUNT_NCCL_PATH']).ncclGetVersion, ctypes.c_void_p)\n"
                "for line in open('/proc/self/maps'):\n"
                "    first, last = (int(word, 16) for word in line.split()[0].split('-'))\n"
                "    if first <= at.value < last: print(line.split()[5])\n"
                "print(os.environ.get('SHUNT_LIB'), os.environ['LD_AUDIT'])")
        done = run(COMMAND, "run", "--audit", "--", inner["bin/shunt"], "run", "--audit", sys.executable, "-S", "-c", show,
                   LD_AUDIT="")
        library, audit = inner["lib/libnccl.so.2"].resolve(), inner["lib/libshunt_audit.so"].resolve()
        assert done.stdout == f"{library}\nNone {audit}\n", (done.stdout, library)
        # A broken stderr does not end the program that prints the line.
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([CLIENT, FAKE], env=dict(os.environ, LD_AUDIT=AUDIT, SHUNT_LIB="/nowhere/libnccl.so.2"),
                              stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60, check=False)
        os.close(writer)
        assert done.returncode == 0 and done.stdout.startswith("plain"), done
        # The command reports an audit library that is not beside the library.
        moved = shutil.copy(SHUNT, os.path.join(pathlib.Path(folder), "libnccl.so.2"))
        os.remove(alone)
        done = subprocess.run([COMMAND, "run", "--audit", "true"], env=dict(os.environ, SHUNT_LIB=moved),
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "libshunt_audit.so" in done.stderr, done


choices()
main()
