"""The lessons of a model: one at a time, each in a process of its own, recorded so that none is lost."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from triphase.app.store.versions import Store, open_store
from triphase.errors import Busy, CannotWrite, InvalidValue, TriphaseError
from triphase.server.drafts import Drafts
from triphase.server.lesson_records import LessonRecords, Record
from triphase.server.lesson_schemas import Lesson, NewLesson, Plan, Source
from triphase.server.problems import NotFound, Refused
from triphase.server.unfinished import check_none_waits, correct_outcome, quick_in_use, take_back_quick
from triphase.server.workers import Workers, close_input, error_of, events

LOCK_SECONDS = 30.0  # to wait for the lock of a model that a process of the previous server may still hold
STOP_SECONDS = 60.0  # until a lesson that does not stop is killed, which loses a second of work
PROGRESS_EVENTS = ("scan", "decode", "encode", "corrected", "resumed", "begin", "step", "taught_quick", "warning")


class Lessons:
    """Begins, follows, stops and remembers lessons."""

    def __init__(
        self,
        model: Path,
        root: Path,
        drafts: Drafts,
        on_published: Callable[[], Awaitable[None]],
        *,
        thumbnails: bool = True,
        device: str = "cpu",
    ) -> None:
        """`on_published` is called after a new version is published, before clients get the event."""
        self._common = {"model": str(model), "thumbnails": thumbnails, "device": device}  # in every request
        self.model, self.drafts, self._on_published = model, drafts, on_published
        self.records = LessonRecords(root)
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.running: int | None = None
        self._stopping = self._changing = False
        self._planning, self._workers = asyncio.Lock(), Workers()

    async def recover(self) -> None:
        """Read the records, and go on with a lesson that was running when the server ended."""
        self.records.read()
        for record in self.records:
            if record.lesson.state == "running" and self.running is None:
                with suppress(NotFound, Refused):  # its record says what is missing
                    await self._launch(record, recovered=True)
            else:
                self.records.remove_photos(record)

    def check_idle(self) -> None:
        """Refuse a lesson or a change while a lesson runs, or another change is being made."""
        if self.running is not None:
            raise Busy(f"Lesson {self.running} of {self.model.name} is running: wait until it is done, or stop it.")
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        if self._changing:
            raise Busy(f"{self.model.name} is being changed: try again in a moment.")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let no lesson and no other change begin."""
        self._check_unchanged()
        self._changing = True
        try:
            yield
        finally:
            self._changing = False

    async def begin(self, new: NewLesson, folder: Path | None) -> Lesson:
        """Begin a lesson from a draft, or from a folder on the server's disk."""
        self.check_idle()
        check_none_waits(self.model, self.records)
        if new.draft is not None and not (photos := self.drafts.get(new.draft).photos):
            raise NotFound(f"The draft {new.draft} holds no photo; upload some first.")
        number = self.records.next_number()
        current = Store(self.model).current()
        lesson = Lesson(
            id=number,
            state="running",
            source=Source(draft=new.draft, folder=new.folder),
            created=_now(),
            quick=new.quick,
            force=new.force,
            photos=len(photos) if new.draft is not None else None,
        )
        record = Record(
            lesson=lesson,
            settings=new.settings(),
            options=new.options.model_dump(exclude_none=True),
            folder=None if folder is None else str(folder),
            parent=current.number if current else 0,
        )
        await self._launch(record)
        self.records.prune()
        return record.lesson

    async def consolidate(self, minutes: float | None) -> Lesson:
        """Begin to train the model again on the stored samples; it is recorded as a lesson without photos."""
        self.check_idle()
        check_none_waits(self.model, self.records)
        lesson = Lesson(
            id=self.records.next_number(),
            kind="consolidation",
            state="running",
            source=Source(),
            created=_now(),
            quick=False,
            force=False,
            minutes=minutes,
        )
        parent = open_store(self.model).version().number
        record = Record(lesson=lesson, settings={"minutes": minutes}, options={}, folder=None, parent=parent)
        await self._launch(record)
        self.records.prune()
        return record.lesson

    async def stop(self, number: int) -> Lesson:
        """Stop a lesson without loss; it has stopped when this returns."""
        record = self.records.get(number)
        if self.running != number or self._process is None or self._task is None:
            raise Busy(f"Lesson {number} of {self.model.name} is {record.lesson.state}: there is nothing to stop.")
        await self._end(self._process, self._task)
        return self.records.get(number).lesson

    async def resume(self, number: int, force: bool | None) -> Lesson:
        """Continue a lesson that was stopped, refused or failed."""
        record = self.records.get(number).model_copy(deep=True)  # which takes its place once it is written
        self.check_idle()
        if record.lesson.state == "done":
            raise InvalidValue(f"Lesson {number} of {self.model.name} is done: begin another one.")
        if force is not None:
            record.settings["force"] = record.lesson.force = force
        change = {"state": "running", "outcome": None, "error": None, "ended": None}
        record.lesson = record.lesson.model_copy(update=change)
        await self._launch(record)
        return record.lesson

    async def delete(self, number: int, *, to_draft: bool = False) -> None:
        """Remove a lesson that is not running, with its quick version; its photos may go back into the draft."""
        record = self.records.get(number)
        quick, draft = quick_in_use(self.model, self.records, record), record.lesson.source.draft
        if quick or self.running == number:
            self.check_idle()
        with self.changing():
            if quick:
                await asyncio.to_thread(take_back_quick, self.model, self.records.folder(number) / "model")
                await self._use_published()
            if to_draft and draft is not None:
                await asyncio.to_thread(self.drafts.give_back, draft, self.records.photos(record))
            self.records.remove(number)

    async def plan(self, new: NewLesson, folder: Path | None) -> Plan:
        """What a lesson would learn."""
        check_none_waits(self.model, self.records)
        photos = self.drafts.folder(new.draft) if new.draft is not None else folder
        if new.draft is not None and not self.drafts.get(new.draft).photos:
            raise NotFound(f"The draft {new.draft} holds no photo; upload some first.")
        options = new.options.model_dump(exclude_none=True)
        request = {"work": "plan", "photos": str(photos), "settings": new.settings(), "options": options}
        async with self._planning:
            process = await self._start(request)
            event: dict[str, Any] = {}
            async for event in events(process):
                if event["event"] != "warning":
                    break
            close_input(process)
            await process.wait()
        self.warm_up()
        if event.get("event") == "plan":
            return Plan.model_validate(event["plan"])
        raise error_of(event)

    async def close(self) -> None:
        """Stop what runs; its record says that it is running, so the next start goes on with it."""
        if self._process is not None and self._task is not None:
            record = self.records.get(self.running or 0)
            await self._end(self._process, self._task)
            if record.lesson.state == "stopped":
                record.lesson.state, record.lesson.ended = "running", None
                self.records.save(record)
        await self._workers.close()

    def warm_up(self) -> None:
        """Prepare for a lesson that will probably be asked for."""
        if self.running is None:
            self._workers.warm_up()

    # --- the process ----------------------------------------------------------------------------------------------

    async def _launch(self, record: Record, *, recovered: bool = False) -> None:
        number, photos = record.lesson.id, self.records.photos(record)
        self.records.save(record)
        if record.lesson.source.draft is not None and not photos.exists():
            try:
                self.drafts.take(record.lesson.source.draft, photos)
            except NotFound as error:
                record.lesson = record.lesson.model_copy(update={"state": "failed", "error": str(error)})
                self.records.save(record)
                raise
        self.running, self._stopping = number, False
        request: dict[str, Any] = {"work": record.lesson.kind, "settings": record.settings}
        request |= {"options": record.options, "photos": str(photos)}
        request |= {"patience": LOCK_SECONDS if recovered else 0, "parent": record.parent if recovered else None}
        try:
            self.records.log(number).append("state", record.lesson.model_dump())
            self._process = await self._start(request)
        except Exception as error:  # whatever it is, the next lesson must not wait for this one
            await self._finish(record, {"event": "error", "sentence": str(error)})
            raise
        self._task = asyncio.create_task(self._follow(self._process, record, recovered))

    async def _start(self, request: dict[str, Any]) -> Process:
        try:
            return await self._workers.start(self._common | request)
        except OSError as error:
            reason = f"The process of a lesson cannot be started ({error.strerror}); end other programs"
            raise Refused(503, f"{reason}, and try again.") from error

    async def _follow(self, process: Process, record: Record, recovered: bool) -> None:
        """Record the events of a lesson until it ends; an error that nobody expected ends it, too."""
        try:
            last = await self._last_event(process, record)
            if recovered and last["event"] == "outcome":
                correct_outcome(self.model, record, last["outcome"])
        except Exception as error:  # such as a history that is damaged
            sentence = f"The lesson could not be followed ({error}); resume it to go on where it was."
            last = {"event": "error", "sentence": sentence}
        await self._finish(record, last)

    async def _last_event(self, process: Process, record: Record) -> dict[str, Any]:
        """Record progress until the process ends, and return what it reported at last."""
        log = self.records.log(record.lesson.id)
        last: dict[str, Any] = {"event": "stopped"}
        try:
            async for event in events(process):
                if event["event"] == "taught_quick":
                    await self._use_published()
                if event["event"] in PROGRESS_EVENTS:
                    log.append(event.pop("event"), event)
                else:
                    last = event
        except BaseException:
            if process.returncode is None:
                process.kill()  # nobody reads what it reports any more, so it would wait for ever
            raise
        finally:
            close_input(process)
            status = await process.wait()
        if status and last["event"] == "stopped" and not self._stopping:
            sentence = f"The lesson's process ended with status {status}; resume it to go on where it was."
            last = {"event": "error", "sentence": sentence}
        return last

    async def _finish(self, record: Record, last: dict[str, Any]) -> None:
        change: dict[str, Any] = {"state": "stopped"}
        if last["event"] == "outcome":
            state = "refused" if last["refusal"] else "done"
            change = {"state": state, "outcome": last["outcome"], "error": last["refusal"]}
        elif last["event"] == "error":
            change = {"state": "failed", "error": last["sentence"]}
        ended = record.model_copy(update={"lesson": record.lesson.model_copy(update={**change, "ended": _now()})})
        try:
            if last["event"] == "outcome":
                await self._use_published()
            with suppress(CannotWrite):  # the next start does the lesson again, and finds nothing to learn
                self.records.write(ended)
            await asyncio.to_thread(self.records.remove_photos, ended)
        finally:  # together, so that no client sees a lesson that has ended and still is in the way
            record.lesson = ended.lesson
            self.running = self._process = self._task = None
        self.records.log(ended.lesson.id).append("state", ended.lesson.model_dump())

    async def _use_published(self) -> None:
        """Answer from the new version; if it cannot be read, the previous one continues to answer."""
        with suppress(TriphaseError):
            await self._on_published()

    async def _end(self, process: Process, task: asyncio.Task[None]) -> None:
        self._stopping = True
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(task), STOP_SECONDS)
        except asyncio.TimeoutError:
            process.kill()
            await task


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
