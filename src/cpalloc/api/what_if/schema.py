"""JSON Schemas of what-ifs: the simulator's own, with what may be written short and what comes inline."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import TypeAdapter

from cpalloc.api.what_if.documents import MissingRun, State
from cpalloc.api.what_if.inline import InlineWorkload

_DEFS = "#/$defs/"
_SPAN: dict[str, Any] = {
    "description": "A length of time: `8h`, `1d12h`, `PT8H`, or seconds.",
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
}
_SEEDS: dict[str, Any] = {
    "description": "One simulation each: `1-10`, `[1, 4]`, or a number.",
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}},
    ],
    "default": 0,
}


def what_if_schemas() -> dict[str, dict[str, Any]]:
    """Make the schemas of request and result by name; each has its own ``$defs``."""
    return {"WhatIf": _request(), "WhatIfResult": _result()}


def _request() -> dict[str, Any]:
    from cpalloc.sim.lab import LabConfig

    scenario, workload = _scenario(), InlineWorkload.model_json_schema()
    lab = LabConfig.model_json_schema()
    workload["properties"]["lab"] = {"anyOf": [{"$ref": f"{_DEFS}LabConfig"}, {"type": "null"}], "default": None}
    defs = {**scenario.pop("$defs"), **lab.pop("$defs"), **workload.pop("$defs", {})}
    base = {**copy.deepcopy(scenario), "title": "WhatIfBase", "required": ["workload", "policy", "until"]}
    change = {**scenario, "title": "WhatIfScenario", "required": ["name"]}
    change["description"] = "What is different from the base; tables are changed key by key, the rest is replaced."
    change["properties"] = {name: _without_default(value) for name, value in scenario["properties"].items()}
    return {
        "title": "WhatIf",
        "description": "A base and named changes of it, as in a file of scenarios, with the workload's content inline.",
        "type": "object",
        "additionalProperties": False,
        "required": ["base"],
        "properties": {
            "title": {"type": "string", "maxLength": 200},
            "base": {"$ref": f"{_DEFS}WhatIfBase"},
            "scenario": {"type": "array", "items": {"$ref": f"{_DEFS}WhatIfScenario"}},
        },
        "$defs": {**defs, "LabConfig": lab, "InlineWorkload": workload, "WhatIfBase": base, "WhatIfScenario": change},
    }


def _scenario() -> dict[str, Any]:
    from cpalloc.sim.scenario import Scenario

    schema = Scenario.model_json_schema()
    properties = schema["properties"]
    for name in ("window", "charge_horizon", "max_min_runtime", "start_timeout"):
        properties[name] = {**_SPAN, "default": properties[name]["default"]}
    for name in ("until", "round_interval", "heartbeat", "sample_interval", "warm_up", "prior"):
        given = properties[name].get("default")
        properties[name] = {**_SPAN, **({} if given is None else {"default": given})}
    properties["seeds"] = _SEEDS
    properties["workload"] = {"$ref": f"{_DEFS}InlineWorkload"}
    properties["policy"] = {"anyOf": [{"type": "string"}, {"$ref": f"{_DEFS}PolicySpec"}]}
    del schema["$defs"]["WorkloadSource"]
    return schema


def _without_default(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


def _result() -> dict[str, Any]:
    from cpalloc.sim.measures import Comparison

    comparison = TypeAdapter(Comparison).json_schema()
    missing = MissingRun.model_json_schema()
    defs = {**comparison.pop("$defs"), **missing.pop("$defs"), "Comparison": comparison, "MissingRun": missing}
    return {
        "title": "WhatIfResult",
        "description": "The runs that are done, side by side, and those that are missing.",
        "type": "object",
        "required": ["id", "title", "state", "complete", "missing", "comparison"],
        "properties": {
            "id": {"type": "string"},
            "title": {"type": "string"},
            "state": {"enum": [str(state) for state in State], "type": "string"},
            "complete": {"type": "boolean", "description": "No run is missing."},
            "missing": {"type": "array", "items": {"$ref": f"{_DEFS}MissingRun"}},
            "comparison": {
                "description": "As `cpalloc compare --json` prints it; null as long as no run is done.",
                "anyOf": [{"$ref": f"{_DEFS}Comparison"}, {"type": "null"}],
            },
        },
        "$defs": defs,
    }
