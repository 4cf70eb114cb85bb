"""A round in canonical form, and its fingerprint: the same for the same question however it was written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cpalloc.collector import collector_paused
from cpalloc.schema.request import Cluster, Job, Round


class Fingerprints:
    """Fingerprints of rounds that follow one another; jobs and clusters met again are not written out again.

    The last round's objects are kept, no others. For one thread at a time.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job | Cluster, str]] = {}

    @collector_paused()
    def of(self, round_: Round) -> str:
        """``sha256:`` and the hash of the round as JSON without defaults, keys sorted, lists in the order given."""
        rest = round_.model_dump(mode="json", exclude_defaults=True, exclude={"cluster", "jobs"})
        parts: list[Job | Cluster] = [round_.cluster, *round_.jobs]
        known = {id(part): self._text(part) for part in parts}
        texts = {key: _json(value) for key, value in rest.items()}
        texts["cluster"] = known[id(round_.cluster)][1]
        texts["jobs"] = "[" + ",".join(known[id(job)][1] for job in round_.jobs) + "]"
        self._known = known
        text = "{" + ",".join(f"{_json(key)}:{texts[key]}" for key in sorted(texts)) + "}"
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def _text(self, part: Job | Cluster) -> tuple[Job | Cluster, str]:
        known = self._known.get(id(part))
        if known is None or known[0] is not part:
            return part, _json(part.model_dump(mode="json", exclude_defaults=True))
        return known


def fingerprint(round_: Round) -> str:
    """The fingerprint of one round (:class:`Fingerprints`)."""
    return Fingerprints().of(round_)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
