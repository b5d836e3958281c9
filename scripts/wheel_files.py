#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel_files.py - download single files of a wheel from the package index, without the rest.

usage: wheel_files.py PACKAGE[==VERSION] FOLDER ENDING...     (files whose names end with an ENDING go below FOLDER)

pip finds the wheel by its own settings (index, proxy, certificates), and the zip is read by HTTP ranges. That reader
is inside pip and not public: any failure is an exception, and callers need a fallback.
"""

import contextlib
import pathlib
import sys
import zipfile


@contextlib.contextmanager
def index(package):
    """pip's session, and its finder for a package's wheels."""
    from pip._internal.commands import create_command

    command = create_command("download")
    options, _ = command.parse_args(["-q", "--only-binary=:all:", package])
    with command.main_context():
        session = command.get_default_session(options)
        yield session, command._build_package_finder(options, session)


def versions(package):
    """The versions of a package in the index, as text, oldest first."""
    with index(package) as (_, finder):
        return [str(version) for version in sorted({one.version for one in finder.find_all_candidates(package)})]


def read(package, endings):
    """(file name of the wheel, {name: bytes}) of the newest wheel of a package, or of NAME==VERSION."""
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP
    from pip._vendor.packaging.specifiers import SpecifierSet

    name, equal, version = package.partition("==")
    with index(package) as (session, finder):
        link = finder.find_best_candidate(name, SpecifierSet(equal + version)).best_candidate.link
        with zipfile.ZipFile(LazyZipOverHTTP(link.url_without_fragment, session)) as archive:
            names = [inside for inside in archive.namelist() if inside.endswith(tuple(endings))]
            return link.filename, {inside: archive.read(inside) for inside in names}


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
