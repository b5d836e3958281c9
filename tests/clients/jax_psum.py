#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX in one process over all GPUs: pmap and shard_map psum, pmean, pmax, all_gather, with Shunt and without.

Needs JAX with CUDA and two GPUs or more. JAX opens its wheel's NCCL by an absolute path where it finds
one, so Shunt is loaded by the audit library. The last line is `N passed, N failed`.
"""

import client


def pmap_checks(jax, jnp, np, devices):
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
            results[f"pmap {np.dtype(dtype).name} {count}"] = bool(good)
    step = jax.pmap(lambda v: jax.lax.psum(v * 2, "i") / devices, axis_name="i")
    v = jnp.ones((devices, 1000), jnp.float32)
    for _ in range(10):
        v = step(v)
    results["pmap ten steps"] = bool(np.allclose(np.asarray(v), 2.0**10))
    return results


def shard_map_checks(jax, jnp, np, devices):
    try:
        from jax import shard_map
    except ImportError:
        from jax.experimental.shard_map import shard_map
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array(jax.local_devices()), ("i",))
    split = PartitionSpec("i")
    results = {}
    for count in (1, 1000, 65537):
        x = np.random.default_rng(count).integers(-4, 5, (devices, count)).astype(np.float32)
        summed = jax.jit(shard_map(lambda v: jax.lax.psum(v, "i"), mesh=mesh, in_specs=split, out_specs=PartitionSpec()))
        gathered = jax.jit(shard_map(lambda v: jax.lax.all_gather(v, "i", tiled=True), mesh=mesh, in_specs=split,
                                     out_specs=split))
        results[f"shard_map psum {count}"] = bool(np.array_equal(np.asarray(summed(x)), x.sum(0, keepdims=True)))
        results[f"shard_map all_gather {count}"] = bool(np.array_equal(np.asarray(gathered(x)), np.tile(x, (devices, 1))))
    return results


def worker(options):
    try:
        import jax
        import jax.numpy as jnp
        import numpy as np
    except ImportError as error:
        client.skip(f"no JAX: {error}")
    devices = jax.local_device_count()
    if devices < 2 or jax.local_devices()[0].platform not in ("gpu", "cuda"):
        client.skip("JAX sees fewer than two GPUs")
    if client.wanted(options, "pmap"):
        client.report(pmap_checks(jax, jnp, np, devices))
    if client.wanted(options, "shard_map"):
        client.report(shard_map_checks(jax, jnp, np, devices))


if __name__ == "__main__":
    client.compare(__doc__, worker, audit=True)
