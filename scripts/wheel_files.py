#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel_files.py - download single files of a wheel from the package index, without the rest.

usage: wheel_files.py PACKAGE FOLDER ENDING...     (files whose names end with an ENDING go below FOLDER)

pip finds the wheel by its own settings (index, proxy, certificates), and the zip is read by HTTP ranges. That reader
is inside pip and not public: any failure is an exception, and callers need a fallback.
"""

import pathlib
import sys
import zipfile


def read(package, endings):
    """(file name of the wheel, {name: bytes}) of the newest wheel of a package."""
    from pip._internal.commands import create_command
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP

    command = create_command("download")
    options, _ = command.parse_args(["-q", "--only-binary=:all:", package])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        link = finder.find_best_candidate(package).best_candidate.link
        with zipfile.ZipFile(LazyZipOverHTTP(link.url_without_fragment, session)) as archive:
            names = [name for name in archive.namelist() if name.endswith(tuple(endings))]
            return link.filename, {name: archive.read(name) for name in names}


def main(package, folder, *endings):
    wheel, files = read(package, endings)
    for name, data in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{wheel}: {path}")
    return 0 if files else 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__.split("\n\n")[1])
    sys.exit(main(*sys.argv[1:]))
