"""Routes about lessons."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from triphase.errors import InvalidValue
from triphase.server.drafts import photos_in, read_photo
from triphase.server.events import MEDIA_TYPE, Subscribers, stream
from triphase.server.lesson_schemas import Lesson, LessonPhotos, Lessons, NewConsolidation, NewLesson, Plan, Resume
from triphase.server.problems import NotFound
from triphase.server.routes.common import JPEG, MODEL, OneModel, PhotoKey, problems, thumbnail_response
from triphase.server.served_model import ServedModel

LESSON = MODEL + "/lessons/{lesson}"
router = APIRouter(tags=["lessons"], responses=problems(409, 422, 507))
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
    204: {"description": "The lesson is over, and all its events were sent"},
}


@router.get(MODEL + "/lessons")
async def list_lessons(model: OneModel) -> Lessons:
    """The lessons of a model, newest first."""
    return Lessons(lessons=[record.lesson for record in model.lessons.records])


@router.post(MODEL + "/lessons", status_code=202)
async def begin_lesson(model: OneModel, body: NewLesson, request: Request) -> Lesson:
    """Begin a lesson."""
    return await model.lessons.begin(body, _folder(request, body))


@router.post(MODEL + "/lessons/plan")
async def plan_lesson(model: OneModel, body: NewLesson, request: Request) -> Plan:
    """What a lesson would learn; what it would refuse is refused, and nothing is written."""
    return await model.lessons.plan(body, _folder(request, body))


@router.post(MODEL + "/consolidate", status_code=202)
async def consolidate(model: OneModel, body: NewConsolidation | None = None) -> Lesson:
    """Train the model anew on what is stored; the result is published if held-out photos say that it is better."""
    return await model.lessons.consolidate(body.minutes if body else None)


@router.get(LESSON)
async def show_lesson(model: OneModel, lesson: int) -> Lesson:
    """A lesson and what became of it."""
    return model.lessons.records.get(lesson).lesson


@router.post(LESSON + "/stop")
async def stop_lesson(model: OneModel, lesson: int) -> Lesson:
    """Stop a lesson without loss."""
    return await model.lessons.stop(lesson)


@router.post(LESSON + "/resume")
async def resume_lesson(model: OneModel, lesson: int, body: Resume | None = None) -> Lesson:
    """Go on with a lesson that was stopped, refused or failed."""
    return await model.lessons.resume(lesson, body.force if body else None)


@router.delete(LESSON, status_code=204)
async def delete_lesson(
    model: OneModel,
    lesson: int,
    to_draft: Annotated[bool, Query(description="Put its photos back into the draft")] = False,
) -> None:
    """Remove a lesson that is not running."""
    await model.lessons.delete(lesson, to_draft=to_draft)


@router.get(LESSON + "/photos")
async def show_lesson_photos(model: OneModel, lesson: int) -> LessonPhotos:
    """The photos that were uploaded for a lesson, until it is done."""
    return LessonPhotos(photos=await asyncio.to_thread(photos_in, _uploads(model, lesson)))


@router.get(LESSON + "/thumbnails/{photo}", response_class=Response, responses=JPEG)
async def show_lesson_thumbnail(model: OneModel, lesson: int, photo: PhotoKey) -> Response:
    """A photo of a lesson, at most 128 pixels wide and high."""
    content = await asyncio.to_thread(read_photo, _uploads(model, lesson), photo, f"Lesson {lesson}")
    return await thumbnail_response(model, content)


@router.get(LESSON + "/events", response_class=StreamingResponse, responses=EVENTS)
async def watch_lesson(
    model: OneModel,
    lesson: int,
    request: Request,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The events of a lesson as they happen."""
    lessons, last = model.lessons, _number(last_event_id)
    log = lessons.records.log(lesson)

    def is_over() -> bool:
        return lessons.running != lesson

    if is_over() and last >= len(log):
        return Response(status_code=204)
    events = stream(log, last, is_over, lambda: bool(request.app.state.closing))
    subscribers: Subscribers = request.app.state.subscribers
    return subscribers.respond(events)


def _uploads(model: ServedModel, lesson: int) -> Path:
    return model.lessons.records.uploads(model.lessons.records.get(lesson).lesson.id)


def _number(last_event_id: str | None) -> int:
    given = last_event_id or ""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0


def _folder(request: Request, body: NewLesson) -> Path | None:
    """A folder below the one that was named when the server was started, links followed."""
    root, folder = request.app.state.photos, body.folder
    if folder is None:
        return None
    if root is None:
        raise InvalidValue("This server reads no folder of its disk; start it with --photos DIR to allow one.")
    missing = NotFound("There is no such folder among the photos of this server.")
    try:
        place = Path(root, folder).resolve()
        if place.is_relative_to(root.resolve()) and place.is_dir():
            return place
    except (OSError, ValueError) as error:  # no path can be called so
        raise missing from error
    raise missing
