"""triphase serve: a page to teach and use a model, and an HTTP interface for programs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from triphase.app.options import parse_memory
from triphase.cli.device import Device, device_name
from triphase.errors import BadData

NEEDED = ("fastapi", "uvicorn", "multipart", "prometheus_client")


def serve(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="Folder of the model; the first lesson creates it.")
    ] = None,
    models: Annotated[Path | None, typer.Option(metavar="DIR", help="Serve all models in a folder.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on.", show_default="8765, or a free one")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    photos: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Allow lessons from folders in this one.")
    ] = None,
    watch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Answer photos that appear in this folder.")
    ] = None,
    label_studio: Annotated[
        str | None, typer.Option(metavar="URL", help="Serve as ML backend of this Label Studio.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Read the token from a file instead of making one.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another host name to answer for; may be repeated.")
    ] = None,
    thumbnails: Annotated[
        bool,
        typer.Option("--thumbnails/--no-thumbnails", help="Keep thumbnails of taught photos in the model."),
    ] = True,
    keep_unsure: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Space for photos with unsure answers, such as 200MB.",
            show_default="0, with --watch 200MB",
        ),
    ] = None,
    device: Device = None,
    certfile: Annotated[Path | None, typer.Option(help="Certificate for TLS, with --keyfile.")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="Key for TLS, with --certfile.")] = None,
) -> None:
    """Teach, try and correct a model in the browser; programs use the same server.

    Only this machine can reach the server unless --host says otherwise, and only with the token that is printed.

    Examples:
      triphase serve my-model
      triphase serve --models models/ --port 8000 --no-open
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise BadData(f"serve needs {', '.join(missing)}; install them with: pip install 'triphase[app]'")
    from triphase.server.options import ServeOptions
    from triphase.server.run import Address, serve

    address = Address(host, port, tuple(allow_host or ()), certfile, keyfile)
    token = None if token_file is None else token_file.read_text(encoding="utf-8")
    kept = _bytes(keep_unsure if keep_unsure is not None else "200MB" if watch else "0")
    where = device_name(device)
    options = ServeOptions(model, models, photos, watch, label_studio, thumbnails, kept, device=where)
    serve(options, address, token, open_page=open_page)


def _bytes(text: str) -> int:
    """A number of bytes, as in 200MB; 0 is none."""
    return 0 if text.strip() == "0" else parse_memory(text)[0]
