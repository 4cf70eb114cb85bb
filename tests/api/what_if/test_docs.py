"""What docs/http.md shows of what-ifs works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cpalloc.api.settings import Settings

from .server import serving

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^<!-- run: serves -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_example(tmp_path: Path) -> None:
    with serving(Settings()) as (url, _):
        script = EXAMPLE.replace("http://127.0.0.1:8000", url)
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^event: (?!progress)(\w+)$", done.stdout, re.MULTILINE) == ["status", *["run"] * 6, "done"]
    comparison = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["complete"]
    assert comparison["comparison"]["seeds"] == [[1, 2]] * 3
    assert "<svg" in (tmp_path / "two-teams.html").read_text(encoding="utf-8")


def test_every_setting_is_named() -> None:
    named = {name.lower() for name in re.findall(r"`CPALLOC_(\w+)`", PAGE)}
    assert set(Settings.model_fields) - {"max_workers"} <= named
