"""Storage that this computer and all nodes of a cluster reach: a shared folder, or whatever fsspec can open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from triphase.errors import InvalidValue, TriphaseError, Unreachable


class Storage:
    """Files below a URL of fsspec, each written whole or not at all."""

    def __init__(self, url: str) -> None:
        """`url` is a path or a URL such as s3://bucket/prefix."""
        import fsspec

        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:  # no such protocol, or its package is not installed
            raise InvalidValue(f"--storage {url} cannot be used: {error}.") from error
        except Exception as error:  # a file system may connect at once, and raises what its package raises
            raise self._unreachable(error) from error

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is none."""
        with self._reaching():
            try:
                content: bytes = self._files.cat_file(self._full(path))
            except FileNotFoundError:
                return None
            return content

    def write(self, path: str, blob: bytes) -> None:
        """Write a file under another name, then give it its own."""
        with self.writing(path) as file:
            file.write(blob)

    @contextmanager
    def writing(self, path: str) -> Iterator[IO[bytes]]:
        """A file to be written in pieces; it appears when it is complete."""
        full = self._full(path)
        temporary = f"{full}.{uuid4().hex}.part"
        with self._reaching():
            self._files.makedirs(full.rpartition("/")[0], exist_ok=True)
            try:
                with self._files.open(temporary, "wb") as file:
                    yield file
                self._files.mv(temporary, full)
            except BaseException:  # Ctrl-C, too: an archive of data may be large
                with suppress(Exception):
                    self._files.rm(temporary)
                raise

    @contextmanager
    def reading(self, path: str) -> Iterator[IO[bytes]]:
        """A file to be read in pieces."""
        with self._reaching(), self._files.open(self._full(path), "rb") as file:
            yield file

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        with self._reaching():
            self._files.invalidate_cache()
            return bool(self._files.exists(self._full(path)))

    def names(self, path: str) -> list[str]:
        """The names of what is in a folder; none if there is no such folder."""
        with self._reaching():
            self._files.invalidate_cache()
            try:
                found: list[str] = self._files.ls(self._full(path), detail=False)
            except FileNotFoundError:
                return []
            return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, path: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with self._reaching():
            self._files.invalidate_cache()
            if self._files.exists(self._full(path)):
                self._files.rm(self._full(path), recursive=True)

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except TriphaseError:  # of what reads or writes a file in pieces
            raise
        except Exception as error:  # a file system raises what its package raises
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        words = " ".join(str(error).split()) or type(error).__name__
        return Unreachable(
            f"The storage {self.url} cannot be reached ({words}); bring it back, and run again to continue."
        )


def as_url(storage: str) -> str:
    """A storage in a form that other computers can use: paths are absolute.

    >>> as_url("s3://bucket/runs"), Path(as_url("runs")).is_absolute()
    ('s3://bucket/runs', True)
    """
    return storage if "://" in storage or "::" in storage else str(Path(storage).resolve())
