# SPDX-License-Identifier: Apache-2.0
"""The command `shunt`, which takes this process's place."""

import os
import sys

from shunt import COMMAND


def main():
    os.execv(COMMAND, ["shunt"] + sys.argv[1:])


if __name__ == "__main__":
    main()
