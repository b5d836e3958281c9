#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check.py - scripts/check, nccl-header, setup, bench and package in a temporary checkout, with fake programs.

usage: test_check.py SOURCE_FOLDER CASE
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, CASE = sys.argv[1:3]
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def checkout(folder, files):
    """Make a repository with one of the project's scripts and these files."""
    scripts = pathlib.Path(folder, "scripts")
    scripts.mkdir()
    for name in ("check", "nccl-header", "wheel_files.py", "setup", "bench", "package", "common.sh",
                 "test", "skips"):
        shutil.copy(pathlib.Path(SOURCE, "scripts", name), scripts)
    for name, text in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", *files], cwd=folder, check=True)


def run(folder, *command, **variables):
    return subprocess.run([sys.executable, "-B", *command], cwd=folder, capture_output=True, text=True, check=False,
                          env=dict(os.environ, **variables))


def check():
    """scripts/check prints a line for each fault and none for a checkout without faults; --fix only adds licence
    lines."""
    if shutil.which("git") is None:
        print("skipped: no git")
        sys.exit(77)
    good = {"README.md": "See [the code](src/a.c) and `src/a.c`.\n", "src/a.c": f"/* {LICENCE} */\nint a;\n",
            "run": f"#!/bin/sh\n# {LICENCE}\n", "data.csv": "1," * 400 + "\n"}
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, good)
        done = run(folder, "scripts/check")
        assert done.returncode == 0 and not done.stdout, done.stdout
    bad = {"README.md": "word " * 901 + "[lost](nowhere.md) and `src/lost.c`\n", "src/a.c": "int a;\n",
           "src/b.h": f"/* {LICENCE} */\n" + "/" * 121 + "\n", "src/CMakeLists.txt": "# x\n", "run": "#!/bin/sh\ntrue\n"}
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, bad)
        done = run(folder, "scripts/check")
        assert done.returncode == 1, done.stdout
        for fault in ("README.md:1: there is no nowhere.md", "README.md:1: there is no src/lost.c", "words, more than 900",
                      "src/a.c:1: no licence line", "src/CMakeLists.txt:1: no licence line", "run:1: no licence line",
                      "src/b.h:2: 121 characters, more than 120"):
            assert fault in done.stdout, f"no {fault!r} in\n{done.stdout}"
        assert "no licence" not in run(folder, "scripts/check", "--fix").stdout
        assert pathlib.Path(folder, "src/a.c").read_text() == f"/* {LICENCE} */\nint a;\n"
        assert pathlib.Path(folder, "run").read_text() == f"#!/bin/sh\n# {LICENCE}\ntrue\n"
        assert "no licence" not in run(folder, "scripts/check").stdout


def header():
    """scripts/nccl-header takes the header beside an activated environment's PyTorch, but not one that is too
    old."""
    with tempfile.TemporaryDirectory() as folder:
        inside = "lib/python3.9/site-packages/nvidia/nccl/include/nccl.h"
        for name, code in (("old", 22703), ("new", 22907)):
            path = pathlib.Path(folder, name, inside)
            path.parent.mkdir(parents=True)
            path.write_text(f"#define NCCL_VERSION_CODE {code}\n")
        checkout(folder, {"README.md": "x\n"})
        taken = pathlib.Path(folder, ".deps/nvidia/nccl/include/nccl.h")
        # Without an index nothing can be downloaded.
        nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "CONDA_PREFIX": ""}
        done = run(folder, "scripts/nccl-header", VIRTUAL_ENV=f"{folder}/old", **nowhere)
        assert (done.returncode == 0) == taken.exists(), done.stderr  # this Python may have an NCCL wheel
        taken.unlink(missing_ok=True)
        done = run(folder, "scripts/nccl-header", VIRTUAL_ENV=f"{folder}/old", CONDA_PREFIX=f"{folder}/new",
                   PIP_NO_INDEX="1", PIP_FIND_LINKS="")
        assert done.returncode == 0 and "NCCL_VERSION_CODE" in taken.read_text(), done.stderr


def fakes(folder, **programs):
    """Make a folder of shell scripts, to be put into PATH."""
    path = pathlib.Path(folder, "bin")
    path.mkdir(exist_ok=True)
    for name, text in programs.items():
        program = path / name.replace("_", "-")
        program.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        program.chmod(0o755)
    return path


def bench():
    """scripts/bench compiles for this machine's GPUs, as far as Shunt and nvcc support them, and measures graphs
    if there are GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, {"README.md": "x\n"})
        pathlib.Path(folder, "scripts/setup").write_text("#!/bin/sh\n")
        pathlib.Path(folder, "build").mkdir()
        # The text exceeds a pipe's capacity: a reader that stops early ends `shunt info` by a signal.
        fakes(pathlib.Path(folder, "build"), shunt=f"""
            echo "$*" >>{folder}/benches
            [ "$1" != info ] || {{ cat {folder}/device; yes | head -n 500000; }}""")
        path = fakes(folder, cmake=f'echo "$*" >>{folder}/log', nvidia_smi=f"cat {folder}/gpus",
                     nvcc="""
            [ "$1" = --version ] && echo "Cuda compilation tools, release 12.8, V12.8.93" && exit
            printf 'sm_75\\nsm_80\\nsm_90\\nsm_100\\n'""")
        device, log, benches = (pathlib.Path(folder, name) for name in ("device", "log", "benches"))
        device.write_text("Device: CUDA\n")
        for gpus, option in (("9.0\n9.0\n8.0\n", "-DSHUNT_CUDA_ARCHITECTURES=80-real;90-real"),
                             ("7.5\n9.0\n", "-DSHUNT_CUDA_ARCHITECTURES=90-real"),  # too old for the kernels
                             ("6.1\n", ""),
                             ("9.0\n12.0\n", "-USHUNT_CUDA_ARCHITECTURES"),  # too new for nvcc: PTX serves it
                             ("[N/A]\n", "")):
            pathlib.Path(folder, "gpus").write_text(gpus)
            log.write_text("")
            benches.write_text("")
            done = subprocess.run(["scripts/bench"], cwd=folder, capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PATH=f"{path}:{os.environ['PATH']}"))
            assert done.returncode == 0, done.stderr
            options = [word for word in log.read_text().splitlines()[0].split() if "ARCHITECTURES" in word]
            assert options == ([option] if option else []), (gpus, options)
            assert benches.read_text() == "info\nbench\nbench --graph\n", (benches.read_text(), done.stderr)
        device.write_text("Device: CPU\n")
        benches.write_text("")
        done = subprocess.run(["scripts/bench"], cwd=folder, capture_output=True, text=True, check=False,
                              env=dict(os.environ, PATH=f"{path}:{os.environ['PATH']}"))
        assert done.returncode == 0 and "no GPU" in done.stderr and benches.read_text() == "info\nbench\n", done.stderr


def package():
    """scripts/package reports a built tree that supports only some GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, {"README.md": "x\n"})
        path = fakes(folder, cmake="", python3="exit 1")
        for name in ("basename", "bash", "cat", "dirname", "grep", "mkdir", "mktemp", "realpath", "rm", "sed"):
            (path / name).symlink_to(shutil.which(name))
        build = pathlib.Path(folder, "build")
        build.mkdir()
        for cuda, gpus, told in (("ON", "80-real;90-real", True), ("ON", "80-real;90", False), ("OFF", "90-real", False),
                                 ("ON", "90-virtual", False)):
            (build / "CMakeCache.txt").write_text(
                f"SHUNT_CUDA:BOOL={cuda}\nSHUNT_CUDA_ARCHITECTURES:STRING={gpus}\n")
            done = subprocess.run(["scripts/package"], cwd=folder, capture_output=True, text=True, check=False,
                                  env={"PATH": str(path)})
            assert done.returncode == 0, done.stderr
            assert "skipped: no .deb" in done.stderr and "skipped: no wheel" in done.stderr, done.stderr
            assert (f"serve only GPUs of {gpus}" in done.stderr) == told, done.stderr


def setup():
    """scripts/setup on a machine without a compiler or Python: an ordinary user gets one line; --build needs
    fewer packages."""
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, {"README.md": "x\n"})
        path = pathlib.Path(folder, "bin")
        path.mkdir()
        for name in ("basename", "bash", "cat", "dirname", "echo", "env", "head", "mkdir", "sed", "sort", "xargs"):
            (path / name).symlink_to(shutil.which(name))
        stubs = {"sudo": "exit 1", "apt-get": 'echo "$*" >>apt.log', "id": "cat user"}
        for name, text in stubs.items():
            (path / name).write_text(f"#!{path}/bash\n{text}\n")
            (path / name).chmod(0o755)

        def setup_as(user, *options):
            pathlib.Path(folder, "user").write_text(user)
            return subprocess.run([path / "bash", "scripts/setup", *options], cwd=folder, capture_output=True, text=True,
                                  check=False, env={"PATH": str(path), "CUDA_HOME": folder})

        log = pathlib.Path(folder, "apt.log")
        done = setup_as("1000")
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert "this user may not install packages; have root run: apt-get install build-essential" in done.stderr
        assert not log.exists()
        done = setup_as("0", "--build")
        assert done.returncode == 1 and "apt-get could not install them" in done.stderr, done.stderr
        asked = log.read_text()
        assert "build-essential" in asked and "libcmocka-dev" in asked and "clang-format" not in asked, asked
        setup_as("0")
        assert "clang-format" in log.read_text()


def setup_detours():
    """scripts/setup succeeds with sources that cannot be updated, an active Python without pip, and an older
    cmake first in PATH."""
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, {"README.md": "x\n"})
        common = pathlib.Path(folder, "scripts/common.sh")
        assert "/usr/include /usr/local/include" in common.read_text()
        common.write_text(common.read_text().replace("/usr/include /usr/local/include", "include"))
        path = fakes(folder, id="echo 0", gcc="", g__="", make="", ninja="", cmake="cat cmake-version",
                     dpkg_query='[ "${@: -1}" = cmake ] && echo installed',
                     apt_get=f"""echo "$*" >>apt.log
                         [ "$1" != update ] || exit 100
                         [[ "$*" != *python3-pip* ]] || touch pip""",
                     python3=f"""case "$*" in
                         *nccl-header) [ -f pip ] || exit 1
                             mkdir -p .deps/nvidia/nccl/include
                             echo "#define NCCL_VERSION_CODE 22809" >.deps/nvidia/nccl/include/nccl.h ;;
                         *pip*) [ -f pip ] ;;
                         esac""")
        (path / "g--").rename(path / "g++")
        for name in ("basename", "bash", "cat", "dirname", "echo", "env", "head", "mkdir", "sed", "sort", "touch", "xargs"):
            (path / name).symlink_to(shutil.which(name))
        pathlib.Path(folder, "venv").mkdir()
        venv = fakes(pathlib.Path(folder, "venv"), python3="exit 1")
        version = pathlib.Path(folder, "cmake-version")
        version.write_text("cmake version 3.25.1\n")

        def setup_now():
            return subprocess.run([path / "bash", "scripts/setup", "--build"], cwd=folder, capture_output=True, text=True,
                                  check=False, env={"PATH": f"{venv}:{path}", "CUDA_HOME": folder})

        done = setup_now()
        asked = pathlib.Path(folder, "apt.log").read_text()
        assert "install" in asked and "python3-pip" in asked and "DPkg::Lock::Timeout" in asked, asked
        assert done.returncode == 0 and "cannot" not in done.stderr, done.stderr
        # No pip is installed if a Python in PATH has one.
        shutil.rmtree(pathlib.Path(folder, ".deps"))
        pathlib.Path(folder, "apt.log").write_text("")
        done = setup_now()
        assert done.returncode == 0 and "python3-pip" not in pathlib.Path(folder, "apt.log").read_text(), done.stderr
        version.write_text("cmake version 3.10.0\n")
        done = setup_now()
        assert done.returncode == 1 and f"installed, but PATH has {path}/cmake first" in done.stderr, done.stderr


REPORT = """<testsuite>
<testcase name="a.passes" status="run"><system-out>skipped: an apple</system-out></testcase>
<testcase name="gpu.values" status="notrun"><skipped message="77"/><system-out>SKIP: no GPU\n</system-out></testcase>
<testcase name="box" status="notrun"><skipped message="77"/><system-out>[ RUN      ] one
skipped: needs root
[  SKIPPED ] one
[  SKIPPED ] two
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] one
[  SKIPPED ] two
</system-out></testcase>
</testsuite>
"""


def skips():
    """scripts/skips names each skipped test, case and script, and fails on one that no list allows."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("plain.xml", REPORT), ("check.log", "check: skipped: no codespell\nhow it skipped: so\n"),
                           ("most", "plain gpu.*  # none\n* box:one\ncheck check\n"), ("rest", "plain box:t?o\n")):
            pathlib.Path(folder, name).write_text(text)

        def run(*options):
            return subprocess.run([f"{SOURCE}/scripts/skips", *options, "plain.xml", "check.log"], cwd=folder,
                                  capture_output=True, text=True, check=False)

        done = run()
        assert done.returncode == 0 and done.stdout.splitlines() == [
            "  plain gpu.values: no GPU", "  plain box:one: needs root", "  plain box:two: needs root",
            "  check check: no codespell", "skips: 4 skipped"], done.stdout + done.stderr
        done = run("--allowed", "most")
        assert done.returncode == 1 and "box:two: needs root  <- not allowed" in done.stdout, done.stdout
        assert "4 skipped, 1 of them not allowed" in done.stdout, done.stdout
        assert run("--allowed", "most", "--allowed", "rest").returncode == 0


def test():
    """scripts/test builds what each length names, continues after a failed part and fails, and reports a skip that is
    not listed."""
    with tempfile.TemporaryDirectory() as folder:
        checkout(folder, {"README.md": "x\n", "tests/skips/everywhere": "plain gpu.*\n* box\n", "tests/skips/no-nvcc": "# none\n"})
        pathlib.Path(folder, "report").write_text(REPORT)
        for name in ("setup", "format", "package"):
            pathlib.Path(folder, "scripts", name).write_text(
                f'#!/bin/sh\necho "{name} $*" >>"$LOG"\n[ {name} != "$BROKEN" ]\n')
            pathlib.Path(folder, "scripts", name).chmod(0o755)
        path = fakes(folder, nvidia_smi="exit 1", nvcc="echo release 11.0,", cmake="""
            echo "cmake $*" >>"$LOG"
            [ "$*" != "--build --preset $BROKEN -- -k 0" ]""", ctest="""
            echo "ctest $2" >>"$LOG"
            cp report "$4"
            [ "tests of $2" != "$BROKEN" ]""")

        def run(*options, broken="none"):
            log = pathlib.Path(folder, "log")
            log.write_text("")
            done = subprocess.run(["scripts/test", *options], cwd=folder, capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PATH=f"{path}:{os.environ['PATH']}", CUDA_HOME="/nowhere",
                                           LOG=str(log), BROKEN=broken))
            said = [line for line in log.read_text().splitlines() if not line.startswith("cmake --preset")]
            return done, said, log.read_text()

        first = ["setup ", "format check"]
        plain, rest = ["cmake --build --preset quick -- -k 0", "ctest quick"], ["package --try build-quick"]
        address, thread = ([line.replace("quick", name) for line in plain] for name in ("asan", "tsan"))
        more = address + thread
        done, said, log = run()
        assert done.returncode == 0 and said == first + plain, done.stdout + done.stderr
        assert "SHUNT_ALL_TESTS=no" in log and "left out" in done.stderr and "plain gpu.values: no GPU" in done.stdout, log
        done, said, log = run("--all", "--day", "every")
        assert done.returncode == 0 and said == first + plain + more + rest, done.stdout + done.stderr
        assert log.count("SHUNT_ALL_TESTS=yes") == log.count("SHUNT_MUTANTS=all") == 3, log
        assert "left out" not in done.stderr and "day" not in done.stderr, done.stderr
        for day, (mutants, sanitizer) in enumerate(((1, address), (2, thread), (3, address), (1, thread))):
            done, said, log = run("--all", "--day", str(day))
            assert done.returncode == 0 and said == first + plain + sanitizer + rest, done.stdout + done.stderr
            assert log.count(f"SHUNT_MUTANTS={mutants}/3") == 2 and f"day {day}: mutants of part {mutants}/3" in done.stderr, log
        done, said, log = run("--all")
        assert done.returncode == 0 and re.search(r"day [1-9]\d*: mutants of part", done.stderr), done.stderr
        for broken in ("quick", "asan"):
            done, said, log = run("--all", "--day", "every", broken=broken)
            assert done.returncode == 1 and said == first + plain + more + rest, said
            assert "failed: building" in done.stderr.splitlines()[-1], done.stderr
        for broken, part in (("tests of quick", "testing"), ("tests of tsan", "testing-tsan"), ("format", "format"),
                             ("package", "package")):
            done, said, log = run("--all", "--day", "every", broken=broken)
            assert done.returncode == 1 and said == first + plain + more + rest, said
            assert done.stderr.splitlines()[-1].endswith(f"failed: {part}"), done.stderr
        done, said, log = run("--skips-as-listed")
        assert done.returncode == 1 and "failed: skips" in done.stderr, done.stdout + done.stderr
        pathlib.Path(folder, "tests/skips/no-nvcc").write_text("* box:one\n* box:two\n")
        assert run("--skips-as-listed")[0].returncode == 0
        for wrong in (["--sometimes"], ["--day"], ["--all", "--day", "some"], ["--all", "--day", "08"]):
            done, said, log = run(*wrong)
            assert done.returncode == 2 and not said and "usage" in done.stderr, done.stderr


CASES = (bench, check, header, package, setup, setup_detours, skips, test)
{case.__name__: case for case in CASES}[CASE]()
