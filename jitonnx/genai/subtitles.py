"""Transcripts as subtitles: SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.genai.transcription import Segment


def srt(segments: Sequence[Segment]) -> str:
    """Segments as SubRip has them: numbered, with their times."""
    return "\n".join(
        f"{number}\n{_clock(one.start, ',')} --> {_clock(one.end, ',')}\n{one.text}\n"
        for number, one in enumerate(segments, 1)
    )


def vtt(segments: Sequence[Segment]) -> str:
    """Segments as WebVTT has them."""
    cues = (f"\n{_clock(one.start, '.')} --> {_clock(one.end, '.')}\n{one.text}\n" for one in segments)
    return "WEBVTT\n" + "".join(cues)


def _clock(seconds: float, point: str) -> str:
    """Hours, minutes, seconds and thousandths."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"
