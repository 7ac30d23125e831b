"""The route that answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Query, UploadFile

from triphase.errors import BadData
from triphase.server.routes.common import MODEL, OneModel, problems, read_uploads
from triphase.server.schemas import Answers

MAX_TOP = 100
router = APIRouter(tags=["predict"], responses=problems(422))


@router.post(MODEL + "/predict")
async def predict(
    model: OneModel,
    files: Annotated[list[UploadFile], File(description="Photos")],
    top: Annotated[int, Query(ge=1, le=MAX_TOP, description="How many classes to name")] = 3,
) -> Answers:
    """What is in photos: a class and how probable it is, or "unknown"."""
    version, answers = await model.answering.answer(await read_uploads(files, model.drafts.limits), top)
    faults = [answer.error for answer in answers if answer.error is not None]
    if faults and len(faults) == len(answers):
        raise BadData(" ".join(faults[:3]))
    return Answers(version=version, answers=answers)
