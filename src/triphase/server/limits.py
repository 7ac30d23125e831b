"""How much a client may ask for at once."""

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds on what one request, all of them together, and what is kept on disk may take."""

    json_bytes: int = 1 * MB
    upload_bytes: int = 512 * MB  # of one multipart body
    bytes_in_flight: int = 1024 * MB  # of all bodies that are being received
    files: int = 1000  # in one request
    pixels: int = 100_000_000  # of one image
    requests: int = 128  # at once
    subscribers: int = 64  # to events of lessons, among these requests
    idle_seconds: float = 20.0  # without a byte of the headers or the body
    bytes_per_second: int = 10_000  # of a body, on average, after the first idle_seconds
    draft_bytes: int = 4096 * MB  # of all drafts and lessons of a model
    zip_bytes: int = 2048 * MB  # unpacked
    zip_files: int = 20_000
    zip_ratio: int = 200  # of one file, unpacked to packed
