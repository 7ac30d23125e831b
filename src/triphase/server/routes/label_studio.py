"""The routes of a Label Studio ML backend: at the top for a server of one model, and below each model."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from triphase.errors import InvalidValue, TriphaseError
from triphase.server.answering import AnsweredPhoto, Upload
from triphase.server.label_studio import DRAFT, Labelling, LabelStudio
from triphase.server.lesson_schemas import NewLesson
from triphase.server.problems import Full
from triphase.server.routes.common import MODEL, models_of, problems
from triphase.server.served_model import ServedModel

BELOW = MODEL + "/label-studio"
PATHS = r"(/api/v1/models/[^/]+/label-studio)?/(predict|setup|webhook|health)"
MAX_TASKS = 1000
router = APIRouter(tags=["label studio"], responses=problems(409, 422, 507))


class Up(BaseModel):
    """That the backend answers."""

    status: str = "UP"
    model_class: str = "triphase"


class Setup(BaseModel):
    """What Label Studio says about a project."""

    label_config: str = Field(default="", alias="schema")
    access_token: str | None = None


class Task(BaseModel):
    """Something to label."""

    data: dict[str, Any] = {}


class Tasks(BaseModel):
    """Tasks that Label Studio wants answers about."""

    tasks: list[Task] = Field(max_length=MAX_TASKS)
    label_config: str


class Prediction(BaseModel):
    """An answer as Label Studio shows it."""

    result: list[dict[str, Any]]
    score: float
    model_version: str
    error: str | None = None  # why there is none; Label Studio ignores it, it helps whoever debugs


class Predictions(BaseModel):
    """An answer for each task."""

    results: list[Prediction]
    model_version: str


class ModelVersion(BaseModel):
    """Which version answers."""

    model_version: str


class Project(BaseModel):
    """The part of a project that matters here."""

    label_config: str = ""


class Webhook(BaseModel):
    """Something happened in a project."""

    action: str
    project: Project = Project()
    task: Task = Task()
    annotation: dict[str, Any] = {}


class Received(BaseModel):
    """What became of it."""

    status: str
    lesson: int | None = None


@router.get("/health")
@router.get(BELOW + "/health")
async def label_studio_health() -> Up:
    """Whether the backend answers."""
    return Up()


@router.post("/setup")
@router.post(BELOW + "/setup")
async def label_studio_setup(request: Request, body: Setup, model: str | None = None) -> ModelVersion:
    """Check the labelling configuration of a project."""
    served, studio = await _served(request, model), _studio(request)
    if body.label_config:
        Labelling.parse(body.label_config)
    if body.access_token:
        studio.token = body.access_token
    return ModelVersion(model_version=_version(served))


@router.post("/predict")
@router.post(BELOW + "/predict")
async def label_studio_predict(request: Request, body: Tasks, model: str | None = None) -> Predictions:
    """What is in the photos of tasks."""
    served, labelling = await _served(request, model), Labelling.parse(body.label_config)
    photos = await asyncio.gather(*(_photo(request, task, labelling) for task in body.tasks))
    found = [photo for photo in photos if isinstance(photo, Upload)]
    version, answered = await served.answering.answer(found, 1)
    await served.unsure.keep(found, answered)
    answers = iter(answered)
    name = str(version)
    results = [
        _prediction(labelling, next(answers), name)
        if isinstance(photo, Upload)
        else Prediction(result=[], score=0.0, model_version=name, error=photo)
        for photo in photos
    ]
    return Predictions(results=results, model_version=name)


@router.post("/webhook", status_code=201)
@router.post(BELOW + "/webhook", status_code=201)
async def label_studio_webhook(request: Request, body: Webhook, model: str | None = None) -> Received:
    """Collect what was annotated; teach it when Label Studio starts training."""
    served = await _served(request, model)
    if body.action == "START_TRAINING":
        lesson = await served.lessons.begin(NewLesson(draft=DRAFT), None)
        return Received(status="A lesson began.", lesson=lesson.id)
    if body.action not in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
        return Received(status="Nothing to do.")
    labelling = Labelling.parse(body.project.label_config)
    label, photo = labelling.chosen(body.annotation), await _photo(request, body.task, labelling)
    if label is None:
        return Received(status="Nothing to learn: the annotation is no single choice.")
    if isinstance(photo, str):
        return Received(status=f"Nothing to learn: {photo}")
    if len(photo.content) > await asyncio.to_thread(served.drafts.room, served.work):
        raise Full("The quota for uploads is used up: teach or delete what was annotated before.")
    await asyncio.to_thread(served.drafts.add, DRAFT, label, photo.name, photo.content)
    return Received(status="Kept for the next lesson.")


async def _served(request: Request, model: str | None) -> ServedModel:
    models = models_of(request)
    if model is None and models.one is None:
        raise InvalidValue("This server serves several models: give Label Studio /api/v1/models/NAME/label-studio.")
    return await models.get(model if model is not None else models.names()[0])


def _studio(request: Request) -> LabelStudio:
    studio: LabelStudio | None = request.app.state.label_studio
    if studio is None:
        raise InvalidValue("Start the server with --label-studio URL, so that it may fetch photos from there.")
    return studio


async def _photo(request: Request, task: Task, labelling: Labelling) -> Upload | str:
    """The photo of a task, or a sentence why there is none."""
    address = task.data.get(labelling.key)
    studio = _studio(request)
    if not isinstance(address, str):
        return f"The task has no address of a photo at {labelling.key}."
    try:
        return await asyncio.to_thread(studio.fetch, address)
    except TriphaseError as error:
        return str(error)


def _prediction(labelling: Labelling, answered: AnsweredPhoto, version: str) -> Prediction:
    answer = answered.answer
    result = labelling.result(answer.best) if answer.known and answer.best is not None else []
    return Prediction(result=result, score=answer.probability or 0.0, model_version=version)


def _version(model: ServedModel) -> str:
    current = model.store.current()
    return str(current.number) if current else "0"
