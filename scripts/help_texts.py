# SPDX-License-Identifier: Apache-2.0
"""help_texts.py - the help texts of the command `shunt`, parsed: for the manual page and for shells' completions.

A help text has usage lines, then paragraphs. A line that begins with two spaces is an option or a name; its meaning
follows after two spaces or a line break, and continues in lines with more indentation.
"""

import re
import subprocess
import typing


class Option(typing.NamedTuple):
    name: str  # "--json", "-b"; "PID" of an argument
    value: str  # "FILE", "A B"; "" without a value
    meaning: str  # joined to one line


def help_of(shunt, *command):
    return subprocess.run([shunt, *command, "--help"], check=True, capture_output=True, text=True).stdout


def commands(shunt):
    """(name, one-line description) of each command, from `shunt --help`."""
    return re.findall(r"^  (\w+) +(.+)$", help_of(shunt), re.MULTILINE)


def lines(text):
    """(usage lines, [(kind, words, meaning)]); kind is "blank", "option", or "words" for text without a meaning."""
    usage, _, rest = text.partition("\n\n")
    found = []
    for line in rest.splitlines():
        option = re.match(r"^  (\S+(?: \S+)*)(?:  +(.*))?$", line)
        if not line.strip():
            found.append(("blank", "", ""))
        elif option:
            found.append(("option", option[1], option[2] or ""))
        else:
            found.append(("words", line.strip(), ""))
    return [re.sub("^usage:", "", line).strip() for line in usage.splitlines()], found


def options(text):
    """The options and arguments of a command, in the order of its help text."""
    found, within = [], False
    for kind, words, meaning in lines(text)[1]:
        if kind == "option":
            name, _, value = words.partition(" ")
            found.append(Option(name, value, meaning))
        elif kind == "words" and within:
            found[-1] = found[-1]._replace(meaning=f"{found[-1].meaning} {words}".strip())
        within = kind == "option" or (within and kind == "words")
    return found
