"""The wire format as JSON Schema 2020-12, for editors, other languages and contract tests.

``python -m cpalloc.schema.jsonschema --write docs/schema`` writes the files of the repository, which a test holds
against drift; without ``--write`` both schemas go to standard output as one object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cpalloc.schema.answer import Allocation
from cpalloc.schema.request import Round

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def request_schema() -> dict[str, Any]:
    """JSON Schema of a round; what several objects must agree on is beyond it (see ``parse_round``)."""
    return {"$schema": DIALECT, **Round.model_json_schema(mode="validation")}


def answer_schema() -> dict[str, Any]:
    """JSON Schema of an allocation; fields it does not name are allowed and to be ignored."""
    return {"$schema": DIALECT, **Allocation.model_json_schema(mode="validation")}


def schema_files() -> dict[str, str]:
    """The schemas as they are kept in the repository: file name to text."""
    schemas = {"request.schema.json": request_schema(), "answer.schema.json": answer_schema()}
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the schemas into a directory, or print them."""
    parser = argparse.ArgumentParser(prog="python -m cpalloc.schema.jsonschema", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="DIR", help="directory to write the schema files to")
    directory: Path | None = parser.parse_args(arguments).write
    if directory is None:
        print(json.dumps({"request": request_schema(), "answer": answer_schema()}, indent=2))
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schema_files().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
