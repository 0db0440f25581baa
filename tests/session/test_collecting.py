"""What a session does to Python's search for garbage while it is made."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from jitonnx import InferenceSession
from jitonnx.api import loading
from tests.session import models


class _Cycle:
    def __init__(self) -> None:
        self.this = self


@pytest.fixture
def collecting() -> Iterator[None]:
    """Garbage is looked for, and no object is frozen."""
    frozen, enabled = gc.get_freeze_count(), gc.isenabled()
    gc.unfreeze()
    gc.enable()
    yield
    if frozen:
        gc.freeze()
    if not enabled:
        gc.disable()


@pytest.mark.usefixtures("collecting")
def test_what_a_first_session_is_made_of_is_not_looked_through_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_MANY_MODULES", 0)  # as where a start imports what this process has long imported
    young = _Cycle()
    found = weakref.ref(young)
    session = InferenceSession(models.relu_add())
    assert gc.isenabled() and gc.get_freeze_count() == 0
    assert gc.get_count()[0] < 500, "a session of this model makes thousands of objects"
    del young
    gc.collect()
    assert found() is None, "what others made meanwhile is still found"
    assert session.get_inputs()


@pytest.mark.usefixtures("collecting")
def test_garbage_is_found_however_many_sessions_are_made() -> None:
    garbage = _Cycle()
    found = weakref.ref(garbage)
    del garbage
    kept = []
    for _ in range(500):
        with loading.without_collecting:
            kept.append([[] for _ in range(2000)])  # a quarter more objects than there are, so that all are looked at
        if found() is None:
            break
    assert found() is None


@pytest.mark.usefixtures("collecting")
def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        InferenceSession(models.relu_add())
        assert gc.isenabled() and 0 < gc.get_freeze_count() <= count
    finally:
        gc.unfreeze()
