"""The route that answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Query, UploadFile

from triphase.errors import BadData
from triphase.server.routes.common import MODEL, OneModel, problems, read_uploads
from triphase.server.schemas import Answers

MAX_TOP = 100
MAX_NEAREST = 50
router = APIRouter(tags=["predict"], responses=problems(422))


@router.post(MODEL + "/predict")
async def predict(
    model: OneModel,
    files: Annotated[list[UploadFile], File(description="Photos")],
    top: Annotated[int, Query(ge=1, le=MAX_TOP, description="How many classes to name")] = 3,
    nearest: Annotated[
        int, Query(ge=0, le=MAX_NEAREST, description="How many taught photos to name that look like it")
    ] = 0,
    group: Annotated[bool, Query(description="Group unknown photos that look alike")] = False,
    keep: Annotated[bool, Query(description="Keep unsure ones in the inbox, if the server keeps any")] = True,
) -> Answers:
    """What is in photos: a class and how probable it is, or "unknown"."""
    uploads = await read_uploads(files, model.drafts.limits)
    version, answered = await model.answering.answer(uploads, top, features=nearest > 0 or group)
    faults = [one.answer.error for one in answered if one.answer.error is not None]
    if faults and len(faults) == len(answered):
        raise BadData(" ".join(faults[:3]))
    if keep:
        await model.unsure.keep(uploads, answered)
    answers = [one.answer for one in answered]
    if nearest:
        found = await model.reviewing.nearest(answered, nearest)
        answers = [a.model_copy(update={"nearest": photos}) for a, photos in zip(answers, found, strict=True)]
    if group:
        groups = await model.reviewing.unknown_groups(answered)
        answers = [a.model_copy(update={"group": number}) for a, number in zip(answers, groups, strict=True)]
    return Answers(version=version, answers=answers)
