#!/usr/bin/env python3
"""JAX in one process over all GPUs: pmap psum, pmean, pmax and all_gather, with Shunt preloaded and without.

Needs JAX with CUDA and two GPUs or more. JAX opens its wheel's NCCL by absolute path where it finds one,
and LD_PRELOAD does not catch that; the script says whether Shunt saw any call, and compares the results
either way. The last line is `N passed, N failed`.
"""

import json
import sys

import client


def worker():
    import jax
    import jax.numpy as jnp
    import numpy as np

    devices = jax.local_device_count()
    results = {}
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32):
        for count in (1, 17, 1000, 65537, 1 << 20):
            x = np.random.default_rng(count).integers(-4, 5, (devices, count))
            y = jnp.asarray(x, dtype=dtype)
            total = jax.pmap(lambda v: jax.lax.psum(v, "i"), axis_name="i")(y)
            mean = jax.pmap(lambda v: jax.lax.pmean(v.astype(jnp.float32), "i"), axis_name="i")(y)
            largest = jax.pmap(lambda v: jax.lax.pmax(v, "i"), axis_name="i")(y)
            gathered = jax.pmap(lambda v: jax.lax.all_gather(v, "i"), axis_name="i")(y)
            good = (np.array_equal(np.asarray(total, np.int64), np.tile(x.sum(0), (devices, 1)))
                    and np.allclose(np.asarray(mean), np.tile(x.mean(0), (devices, 1)), atol=1e-5)
                    and np.array_equal(np.asarray(largest, np.int64), np.tile(x.max(0), (devices, 1)))
                    and np.array_equal(np.asarray(gathered, np.int64), np.tile(x, (devices, 1, 1))))
            results[f"{np.dtype(dtype).name} {count}"] = bool(good)
    step = jax.pmap(lambda v: jax.lax.psum(v * 2, "i") / devices, axis_name="i")
    v = jnp.ones((devices, 1000), jnp.float32)
    for _ in range(10):
        v = step(v)
    results["ten steps"] = bool(np.allclose(np.asarray(v), 2.0**10))
    print("DEVICES", devices)
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
        print("SKIP: JAX sees fewer than two GPUs")
        sys.exit(77)
    preloaded = client.Run(command, options.seconds, preload=shunt)
    verdict = client.Verdict()
    results = []
    for name, run in (("plain", plain), ("preloaded", preloaded)):
        lines = run.lines("RESULT ")
        verdict.check(run.status == 0 and lines, f"{name}: status {run.status}\n{run.text[-3000:]}")
        results.append(json.loads(lines[0]) if lines else {})
    for name, good in results[1].items():
        verdict.check(good or results[0].get(name) is False, f"{name} with Shunt, plain {results[0].get(name)}")
    if preloaded.taken is None:
        print("note: no call reached Shunt; JAX opened its own NCCL by absolute path")
    else:
        print(f"taken {preloaded.taken}, forwarded {preloaded.forwarded}")
    verdict.end()


if __name__ == "__main__":
    main()
