"""``cpalloc serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from cpalloc.cli.failures import ExitCode


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; CPALLOC_HOST, else 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; CPALLOC_PORT, else 8000.")
    ] = None,
) -> None:
    """Serve over HTTP. Settings come from CPALLOC_* (max_concurrent_solves, max_queue, max_time_limit, …)."""
    import uvicorn
    from pydantic import ValidationError

    from cpalloc.api.app import create_app
    from cpalloc.api.server import Server
    from cpalloc.api.settings import Settings

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong = "; ".join(f"CPALLOC_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors() if e["loc"])
        raise typer.BadParameter(wrong, param_hint="environment") from None
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=settings.drain_s,
    )
    try:
        Server(config).run()
    except SystemExit as stop:  # uvicorn could not start, and has said why
        raise typer.Exit(ExitCode.SERVER if stop.code else 0) from None
