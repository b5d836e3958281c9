# SPDX-License-Identifier: Apache-2.0
"""vLLM's general plugin.

vLLM opens NCCL by name unless VLLM_NCCL_SO_PATH names a file, and workers that it spawns may lose that variable. It
loads general plugins in every worker before the communicators are made, so the variable is set here.
"""

import os

from shunt import LIBRARY


def register():
    os.environ.setdefault("VLLM_NCCL_SO_PATH", str(LIBRARY))
