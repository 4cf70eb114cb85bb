"""Keep what is needed to replay a round that went wrong: the request, and what was wrong."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

ENVIRONMENT = "CPALLOC_REPLAY_DIR"
"""Where rounds are kept; by default a folder of the system's temporary directory."""


def keep(round_json: str, name: str, problems: Sequence[str], model: str | None = None) -> Path | None:
    """Write a round (and the model's text, if there is one) under a name; None when the folder cannot be written."""
    folder = Path(os.environ.get(ENVIRONMENT) or Path(tempfile.gettempdir()) / "cpalloc-replay") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "round.json").write_text(round_json)
        (folder / "problems.json").write_text(json.dumps(list(problems), indent=1))
        if model is not None:
            (folder / "model.pbtxt").write_text(model)
    except OSError as error:
        log.error("the round could not be kept for replay: %s", error)
        return None
    return folder
