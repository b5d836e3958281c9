# SPDX-License-Identifier: Apache-2.0
"""Where the wheel's files are. The package does nothing by itself; `python -m shunt` is the command."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
COMMAND = FOLDER / "bin" / "shunt"
LIBRARY = FOLDER / "lib" / "libnccl.so.2"
