"""Whatever is sent: no 500, and every answer is one that the OpenAPI document describes."""

from __future__ import annotations

from decimal import Decimal

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cpalloc.api.app import create_app
from cpalloc.api.settings import Settings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


# `schemathesis.pytest.from_fixture` would build it later, but schemathesis 4.32 does so in a way pytest 9 has dropped
app = create_app(Settings(max_time_limit=Decimal("0.1"), max_queue=4))
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_breaks_the_service(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)
