"""The fingerprint: of the question, not of how it was written, and the same whatever was met before."""

from __future__ import annotations

import hashlib
import json

from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.schema import Fingerprints, Reader, Round, fingerprint, parse_round
from cpalloc.schema.examples import load


def definition(round_: Round) -> str:
    text = json.dumps(round_.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_it_is_of_the_canonical_text() -> None:
    for document in (load("small"), generate_doc(GeneratorConfig(nodes=16, seed=3))):
        assert fingerprint(parse_round(document)) == definition(parse_round(document))


def test_the_order_of_keys_and_written_defaults_do_not_count() -> None:
    document = load("small")
    other = {key: document[key] for key in reversed(document)}
    other["jobs"] = [{"priority": "normal", **job} for job in document["jobs"]]
    assert fingerprint(parse_round(other)) == fingerprint(parse_round(document))
    assert fingerprint(parse_round({**document, "now": "2026-11-29T12:00:01Z"})) != fingerprint(parse_round(document))


def test_what_was_met_before_does_not_count() -> None:
    reader, known = Reader(), Fingerprints()
    document = load("small")
    for change in ({}, {"now": "2026-11-29T12:01:00Z"}, {"jobs": document["jobs"][1:]}, {}):
        round_ = reader.read({**document, **change})
        assert known.of(round_) == definition(round_)
