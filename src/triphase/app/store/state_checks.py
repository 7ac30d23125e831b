"""Whether the parts of a version belong together, and to what the version says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triphase.app.store.schema import Version, validate
from triphase.app.store.state_schema import validate_part
from triphase.errors import InvalidValue
from triphase.state import is_array

Parts = Mapping[str, Any]
Info = Mapping[str, Any]
TRAINING = ("app", "taught", "exemplars", "settings", "known", "loop", "llf", "csf", "head", "momentum")
INFERENCE = ("inference", "inference_llf", "inference_scores")


def publishable(document: Mapping[str, Any], state: Parts) -> Version:
    """A version that may be written with this state; InvalidValue if it could not be loaded again."""
    try:
        version = validate(Version, document)
        check_state({name: _as_loaded(part) for name, part in state.items()}, version.info)
    except ValueError as error:
        raise InvalidValue(f"This model cannot be published ({error}); nothing was changed.") from error
    return version


def _as_loaded(value: Any) -> Any:
    """A value as it comes back from disk: keys are text, and tuples are lists."""
    if isinstance(value, Mapping):
        return {str(key): _as_loaded(item) for key, item in value.items()}
    return [_as_loaded(item) for item in value] if isinstance(value, list | tuple) else value


def check_state(state: Parts, info: Info, wanted: tuple[str, ...] = ("",)) -> None:
    """Refuse, with a ValueError, a state that lacks a part, or whose parts are not valid or of another version.

    `wanted` says how the names of the parts begin that should be there.
    """
    required = {*TRAINING, *INFERENCE, *(["memory"] if info["replay"] != "none" else [])}
    missing = sorted(name for name in required - state.keys() if name.startswith(wanted))
    if missing:
        raise ValueError(f"there is no part {missing[0]}")
    sizes = {"classes": len(info["classes"]), "pixels": info["image_size"]}
    for name, part in state.items():
        validate_part(name, part, sizes)
    for name, check in CHECKS.items():
        if name in state:
            check(state, info)


def _check_app(parts: Parts, info: Info) -> None:
    app, options = parts["app"], parts["app"]["options"]
    _same("app.names", app["names"], info["classes"])
    _same("app.lessons", app["lessons"], info["lessons"])
    for name in ("backbone", "learner", "replay"):
        _same(f"app.options.{name}", options[name], info[name])
    _same("app.options.image_size", options["image_size"] or info["image_size"], info["image_size"])
    _same("the length of app.exemplar_correct", len(app["exemplar_correct"]), info["memory"]["exemplars"])


def _check_taught(parts: Parts, info: Info) -> None:
    taught = parts["taught"]
    ids = taught["ids"].tolist()
    _same("the number of photos in taught", len(ids), info["taught"])
    _in_range("taught.labels", taught["labels"], len(info["classes"]))
    _in_range("taught.pending_labels", taught["pending_labels"], len(info["classes"]))
    if len(set(ids)) < len(ids) or not set(taught["held_out"].tolist()) <= set(ids):
        raise ValueError("taught names a photo twice, or holds out one that was not taught")


def _check_known(parts: Parts, info: Info) -> None:
    known, classes = parts["known"], range(len(info["classes"]))
    if not isinstance(known, list) or any(type(c) is not int or c not in classes for c in known):
        raise ValueError(f"known are not all below {len(classes)}")
    if len(set(known)) < len(known):
        raise ValueError("known names a class twice")


def _check_head(parts: Parts, info: Info) -> None:
    head, known = parts["head"], parts.get("known", [])
    weight: Any = head.get("weight") if isinstance(head, Mapping) else None
    if not is_array(weight) or weight.ndim != 2:
        raise ValueError("head.weight is not a matrix")
    if not max([-1, *known]) < len(weight) <= len(info["classes"]):
        raise ValueError(f"head.weight has {len(weight)} rows for {len(info['classes'])} classes")


def _check_memory(parts: Parts, info: Info) -> None:
    columns = parts["memory"]["columns"]
    _same("the number of samples in memory", len(columns["y"]), info["memory"]["samples"])
    _same("memory.capacity", parts["memory"]["capacity"], info["memory"]["capacity"])
    _in_range("memory.columns.y", columns["y"], len(info["classes"]))
    _in_range("memory.columns.split", columns["split"], 3)
    wanted = {"raw": "x", "latent": "z"}.get(info["replay"])
    if len(columns["y"]) and columns.get(str(wanted)) is None:
        raise ValueError(f"memory has no column {wanted}")


def _check_closed_form(parts: Parts, info: Info) -> None:
    _same("closed_form.known", sorted(parts["closed_form"]["known"]), list(range(len(info["classes"]))))


def _check_counts(name: str) -> Callable[[Parts, Info], None]:
    def check(parts: Parts, info: Info) -> None:
        if bool((parts[name]["counts"] < 0).any()):
            raise ValueError(f"{name}.counts are negative")

    return check


def _check_inference(parts: Parts, info: Info) -> None:
    inference = parts["inference"]
    _same("inference.names", inference["names"], info["classes"])
    for name in ("backbone", "image_size"):
        _same(f"inference.{name}", inference[name], info[name])
    if "app" in parts:
        for name in ("temperature", "thresholds"):
            _same(f"inference.{name}", inference[name], parts["app"][name])


def _check_thresholds(parts: Parts, info: Info) -> None:
    thresholds = parts["inference"]["thresholds"] if "inference" in parts else []
    scores = 1 if parts["inference_scores"]["members"][-1]["whitening"] is None else 2
    if any(threshold is not None for threshold in thresholds) and len(thresholds) != scores:
        raise ValueError(f"{len(thresholds)} thresholds for {scores} out-of-distribution scores")


CHECKS: dict[str, Callable[[Parts, Info], None]] = {
    "app": _check_app,
    "taught": _check_taught,
    "known": _check_known,
    "head": _check_head,
    "memory": _check_memory,
    "closed_form": _check_closed_form,
    "statistics": _check_counts("statistics"),
    "closed_form_statistics": _check_counts("closed_form_statistics"),
    "inference": _check_inference,
    "inference_scores": _check_thresholds,
}


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{what} is {found}, and the version says {expected}")


def _in_range(what: str, labels: Any, n: int) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n:
        raise ValueError(f"{what} are not all below {n}")
