#!/usr/bin/env python3
"""CuPy's cupy.cuda.nccl in one process over all GPUs, with Shunt preloaded and without.

Needs CuPy built with NCCL and two GPUs or more. The last line is `N passed, N failed`.
"""

import json
import sys

import client


def worker():
    import cupy
    from cupy.cuda import nccl

    n = cupy.cuda.runtime.getDeviceCount()
    print("DEVICES", n, flush=True)
    if n < 2:
        return
    comms = nccl.NcclCommunicator.initAll(n)
    types = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64, "float16": nccl.NCCL_FLOAT16,
             "int32": nccl.NCCL_INT32, "int64": nccl.NCCL_INT64, "uint8": nccl.NCCL_UINT8}
    results = {}
    for dtype, code in types.items():
        for count in (1, 17, 1000, 65537, 1 << 20):
            sends, receives = [], []
            for d in range(n):
                with cupy.cuda.Device(d):
                    sends.append((cupy.arange(count) % 7 + d).astype(dtype))
                    receives.append(cupy.zeros(count, dtype))
                    cupy.cuda.Device(d).synchronize()
            nccl.groupStart()
            for d in range(n):
                with cupy.cuda.Device(d):
                    comms[d].allReduce(sends[d].data.ptr, receives[d].data.ptr, count, code, nccl.NCCL_SUM,
                                       cupy.cuda.Stream.null.ptr)
            nccl.groupEnd()
            good = True
            for d in range(n):
                with cupy.cuda.Device(d):
                    cupy.cuda.Device(d).synchronize()
                    expected = (cupy.arange(count) % 7) * n + n * (n - 1) // 2
                    good = good and bool((receives[d] == expected.astype(dtype)).all())
            results[f"{dtype} {count}"] = good
    for comm in comms:
        comm.destroy()
    print("RESULT " + json.dumps(results), flush=True)


def main():
    p = client.parser(__doc__.splitlines()[0])
    p.add_argument("--worker", action="store_true", help="the program itself")
    options = p.parse_args()
    if options.worker:
        worker()
        return
    shunt = client.library(options)
    command = [sys.executable, __file__, "--worker"]
    plain = client.Run(command, options.seconds)
    if plain.lines("DEVICES") and int(plain.lines("DEVICES")[0]) < 2:
        print("SKIP: CuPy sees fewer than two GPUs")
        sys.exit(77)
    preloaded = client.Run(command, options.seconds, preload=shunt)
    verdict = client.Verdict()
    for name, run in (("plain", plain), ("preloaded", preloaded)):
        lines = run.lines("RESULT ")
        verdict.check(run.status == 0 and lines, f"{name}: status {run.status}\n{run.text[-3000:]}")
        for check, good in (json.loads(lines[0]) if lines else {}).items():
            verdict.check(good, f"{name}: {check}")
    print(f"taken {preloaded.taken}, forwarded {preloaded.forwarded}")
    if preloaded.taken is None:
        print("note: no call reached Shunt; CuPy opened its own NCCL by absolute path")
    verdict.end()


if __name__ == "__main__":
    main()
