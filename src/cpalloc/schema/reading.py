"""Reading one round after the other: what is written as it was in the last one is not read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpalloc.collector import collector_paused
from cpalloc.schema.request import Cluster, Job, Round
from cpalloc.schema.validate import load_document, parse_round


class Reader:
    """Reads rounds that follow one another; what comes of it is what :func:`parse_round` makes of each.

    A cluster, or a job, written exactly as in the last round is the same object again. That round's objects and their
    texts are kept, no others. For one thread at a time.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._cluster: dict[str, Cluster] = {}

    @collector_paused()
    def read(self, document: Mapping[str, Any] | str | bytes) -> Round:
        """Read a round and check that its snapshot can be trusted.

        Raises
        ------
        InputError
            As :func:`parse_round`, with every issue.
        """
        parsed = load_document(document)
        jobs, place = parsed.get("jobs"), repr(parsed.get("cluster"))
        if not isinstance(jobs, list | tuple):
            return parse_round(parsed)
        # Texts and not values are compared: 8, 8.0 and true are equal in Python, and not in a document.
        texts = [repr(job) for job in jobs]
        known: dict[str, Any] = {"jobs": [self._jobs.get(text, job) for text, job in zip(texts, jobs, strict=True)]}
        if place in self._cluster:
            known["cluster"] = self._cluster[place]
        round_ = parse_round(parsed, known=known)
        self._jobs = dict(zip(texts, round_.jobs, strict=True))
        self._cluster = {place: round_.cluster}
        return round_
