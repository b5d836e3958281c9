#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_variables.py - each variable of docs/settings.md has a test of its effect.

usage: test_variables.py SOURCE_FOLDER

The table names the test. A variable without a row fails, and so does a row whose
test is missing, is not run, or has neither the variable's name nor `settings.FIELD`
in its code, or in that of functions and tables of its file which it uses.

No text is read by the program's locale. And only secure_getenv reads the environment, which finds none in a program with more
rights than its caller (tests/hostile/secure_test.c).
"""

import pathlib
import re
import sys

TESTS = {
    "SHUNT_DEVICE": ("cpu/test_variables.c", "device"),
    "SHUNT_ENABLE": ("shim/variables_test.c", "enable"),
    "SHUNT_NCCL_PATH": ("audit/test_audit.py", "choices"),
    "SHUNT_NCCL_EP_PATH": ("ep/forward_test.c", "the_setting_may_name_a_folder"),
    "SHUNT_ALGO": ("cpu/test_variables.c", "algo"),
    "SHUNT_TABLE": ("tools/test_tune.py", "tables"),
    "SHUNT_TABLE_FORCE": ("tools/test_tune.py", "tables"),
    "SHUNT_CACHE_DIR": ("tools/test_tune.py", "tables"),
    "SHUNT_TUNE": ("shim/variables_test.c", "tune"),
    "SHUNT_SCRATCH_BYTES": ("cpu/test_variables.c", "scratch_bytes"),
    "SHUNT_MAX_CTAS": ("cpu/test_variables.c", "max_ctas"),
    "SHUNT_PRIORITY": ("shim/variables_test.c", "priority"),
    "SHUNT_EARLY": ("calls/share_test.c", "early"),
    "SHUNT_DETERMINISTIC": ("shim/variables_test.c", "deterministic"),
    "SHUNT_TIMEOUT_MS": ("cpu/test_variables.c", "timeout_ms"),
    "SHUNT_RECORD": ("cpu/test_hangs.c", "reports_can_be_turned_off"),
    "SHUNT_HANG_WARN_MS": ("cpu/test_hangs.c", "reports_can_be_turned_off"),
    "SHUNT_HANG_FILE": ("cpu/test_hangs.c", "a_rank_that_has_not_called_is_named"),
    "SHUNT_MISMATCH_ERROR": ("cpu/test_hangs.c", "ranks_that_call_different_things_are_named_and_fail"),
    "SHUNT_DEBUG": ("calls/log_test.c", "levels"),
    "SHUNT_DEBUG_FILE": ("calls/log_test.c", "a_file_for_each_process"),
    "SHUNT_STATS": ("calls/statistics_test.c", "printed_at_exit"),
    "SHUNT_TRACE": ("calls/trace_test.c", "written_at_exit"),
    "SHUNT_LISTEN": ("cpu/test_variables.c", "listens"),
    "SHUNT_IBV_SO": ("rdma/variables_test.c", "library"),
    "NCCL_IB_HCA": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_GID_INDEX": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_SL": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_TC": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_PKEY": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_TIMEOUT": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_IB_RETRY_CNT": ("rdma/variables_test.c", "ib_variables"),
    "NCCL_CONF_FILE": ("calls/settings_test.c", "nccls_files"),
    "NCCL_ALGO": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_PROTO": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_TUNER_PLUGIN": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_PROFILER_PLUGIN": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_LAUNCH_MODE": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_LAUNCH_ORDER_IMPLICIT": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_CHECK_POINTERS": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_CHECK_MODE": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_CTA_POLICY": ("shim/variables_test.c", "explicit_choices"),
    "NCCL_COMM_SPLIT_SHARE_RESOURCES": ("shim/variables_test.c", "share_resources"),
    "NCCL_COMM_SHRINK_SHARE_RESOURCES": ("shim/variables_test.c", "share_resources"),
    "NCCL_GRAPH_MIXING_SUPPORT": ("shim/variables_test.c", "graph_mixing"),
    "NCCL_TOPO_FILE": ("topology/link_test.c", "by_cuda"),
    "NCCL_P2P_DISABLE": ("shim/variables_test.c", "no_peer_access"),
    "NCCL_P2P_LEVEL": ("shim/variables_test.c", "no_peer_access"),
    "NCCL_SHM_DISABLE": ("shim/variables_test.c", "shm_disable"),
    "NCCL_CUMEM_ENABLE": ("shim/variables_test.c", "cumem_enable"),
    "NCCL_NVLS_ENABLE": ("shim/variables_test.c", "nvls_enable"),
    "NCCL_MAX_CTAS": ("shim/variables_test.c", "max_ctas"),
    "NCCL_MAX_NCHANNELS": ("shim/variables_test.c", "max_ctas"),
    "NCCL_DEBUG": ("calls/settings_test.c", "nccls_variables_count_where_ours_are_unset"),
    "NCCL_HOSTID": ("cpu/test_variables.c", "node_id"),
    "NCCL_SOCKET_IFNAME": ("cpu/test_nodes.c", "socket_variables"),
    "NCCL_SOCKET_FAMILY": ("cpu/test_nodes.c", "socket_variables"),
    "NCCL_NET": ("shim/nodes_test.c", "networks"),
    "NCCL_NET_PLUGIN": ("shim/nodes_test.c", "networks"),
    "NCCL_IB_DISABLE": ("shim/nodes_test.c", "networks"),
    "NCCL_COMM_ID": ("shim/nodes_test.c", "comm_id"),
    "NCCL_NVTX_DISABLE": ("cpu/test_ranges.c", "nvtx_disable"),
    "NCCL_COMM_BLOCKING": ("cpu/test_variables.c", "comm_blocking"),
}


def promised(source):
    """The names in settings.def, and NCCL's names in docs/settings.md."""
    rows = re.findall(r'^SHIM_SETTING\(\w+, \w+, "(\w+)"', (source / "shim/base/settings.def").read_text(), re.MULTILINE)
    assert len(rows) > 10, rows
    nccls = set(re.findall(r"\bNCCL_[A-Z0-9_]+", (source / "docs/settings.md").read_text()))
    return set(rows) | nccls


def definitions(text, is_python):
    """The code, without comments, of each function and table at the top level of a file, by name."""
    if is_python:
        parts = re.split(r"^(?=def |[A-Z_]+ = )", re.sub(r"#.*", "", text), flags=re.MULTILINE)
        named = re.compile(r"(?:def )?(\w+)")
    else:
        parts = re.split(r"^(?=[a-z#].*)", re.sub(r"/\*.*?\*/", "", text, flags=re.S), flags=re.MULTILINE)
        named = re.compile(r"(?:#define )?[^(=\[]*?(\w+)(?:\(|\[| =|;)")
    return {match[1]: part for part in parts if (match := named.match(part))}


def uses(code, test, wanted):
    """Whether the test, or code that it uses, contains what is wanted."""
    todo, seen = [test], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        if re.search(wanted, code[name]):
            return True
        todo += {word for word in re.findall(r"\w+", code[name]) if word in code} - seen
    return False


def fault(source, variable, where, test):
    path = source / "tests" / where
    if not path.exists():
        return f"there is no {where}"
    text = path.read_text()
    if path.suffix == ".py":
        defined, run = f"def {test}():" in text, len(re.findall(rf"\b{test}\b", text)) > 1
    else:
        defined, run = f"static void {test}(void **state)" in text, re.search(rf"\b(cmocka_unit_test\w*|TEST)\({test}\b", text)
    if not defined or not run:
        return f"{where} has no test {test}, or does not run it"
    code = definitions(text, path.suffix == ".py")
    field = re.search(rf'^SHIM_SETTING\(\w+, (\w+), "{variable}"', (source / "shim/base/settings.def").read_text(), re.MULTILINE)
    wanted = rf"\b{variable}\b" + (rf"|\bsettings\.{field[1]}\b" if field else "")
    return None if uses(code, test, wanted) else f"{where}: {test} does not use it"


# This file compares variables' names and prints unknown ones, but ignores values.
NAMES_ALONE = "tools/base/names.c"


def insecure(source):
    """Lines of the library and the command that read the environment by other functions (except another
    process's in /proc)."""
    for folder in ("shim", "selector", "algorithms", "transport", "tools"):
        for path in sorted(set((source / folder).rglob("*.[ch]*")) - {source / NAMES_ALONE}):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"(?<!secure_)\bgetenv\b|(?<!%d/)\benviron\b", line):
                    yield f"{path.relative_to(source)}:{number}: not secure_getenv"


def by_locale(source):
    """Lines of the library that parse words or numbers by the program's locale: "INFO" is not "info" in Turkish,
    and "2.5" is not a number in German."""
    for folder in ("shim", "selector", "algorithms", "transport"):
        for path in sorted((source / folder).rglob("*.c*")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\b(strn?casecmp|strcasestr|strtof|strtod|strtold|atof)\(", line):
                    yield f"{path.relative_to(source)}:{number}: depends on the locale (shim/base/words.h)"


def main():
    source = pathlib.Path(sys.argv[1])
    names = promised(source)
    faults = [f"{name}: no test is known that it does what it says" for name in sorted(names - TESTS.keys())]
    faults += [f"{name}: neither a setting nor in docs/settings.md" for name in sorted(TESTS.keys() - names)]
    for variable, (where, test) in TESTS.items():
        said = fault(source, variable, where, test)
        faults += [f"{variable}: {said}"] if said else []
    faults += insecure(source)
    faults += by_locale(source)
    print("\n".join(faults) or f"{len(TESTS)} variables")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
