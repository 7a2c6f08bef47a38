"""Validates a settings file for the server: its content comes from standard input, the settings go to standard output.

The argument is the file's name, for messages. What is written is a pickle: of `Settings`, or of all mistakes, each as
the arguments of an `InputError`.
"""

from __future__ import annotations

import pickle
import sys

from webhook.errors import InputErrors
from webhook.settings.file import parse

try:
    answer: object = parse(sys.stdin.buffer.read(), sys.argv[1])
except InputErrors as error:
    answer = [(mistake.what, mistake.where, mistake.fix) for mistake in error.mistakes]
sys.stdout.buffer.write(pickle.dumps(answer))
