"""State, rules and messages are plain: importing them loads no Trio and nothing of the outside world."""

import subprocess
import sys

import pytest

CODE = """
import importlib, pkgutil, sys
for name in ("actors.state", "actors.rules", "actors.messages"):
    package = importlib.import_module(name)
    for found in pkgutil.iter_modules(package.__path__, name + "."):
        importlib.import_module(found.name)
wrong = [m for m in sys.modules if m.partition(".")[0] in {"trio", "httpx", "quart", "pynvml"}]
deep = [m for m in sys.modules if m.startswith("adapters.") and m.count(".") > 1]
wrong += [m for m in deep if not m.endswith(".port")]
print(" ".join(sorted(wrong)))
"""


@pytest.mark.parametrize("options", [[], ["-OO"]])
def test_state_rules_and_messages_load_no_trio(options: list[str]) -> None:
    found = subprocess.run(
        [sys.executable, *options, "-c", CODE], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == ""
