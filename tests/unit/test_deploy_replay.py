"""The Dockerfile's steps run in a folder: stages stand on one another, and a step that fails is told."""

from pathlib import Path

import pytest

from deploy.dockerfile import read_stages
from deploy.replay import Builder, Failed

TEXT = """
ARG BASE=busybox:1.37
FROM ${BASE} AS one
WORKDIR /src
COPY LICENSE ./
# A comment between.
RUN mkdir -p /opt/made \\
    && cp LICENSE /opt/made/licence
FROM ${BASE} AS two
ENV WORD=here
RUN groupadd somebody
COPY --from=one /opt/made /srv/made
WORKDIR /srv
RUN echo "$WORD" >made/word
"""


def test_a_stage_has_what_it_copies_from_another_and_what_it_runs(tmp_path: Path) -> None:
    builder = Builder(tmp_path, read_stages(TEXT))
    builder.build("two")
    made = builder.layer("two") / "srv" / "made"
    assert (made / "licence").read_bytes() == Path("LICENSE").read_bytes()
    assert (made / "word").read_text() == "here\n"
    assert not (builder.layer("two") / "src").exists()
    assert (builder.steps, builder.left_out) == (4, ["two line 11: users of the system"])


def test_a_step_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    text = TEXT.replace('echo "$WORD"', 'echo "no room" >&2; exit 3; echo')
    with pytest.raises(Failed, match="ends with 3: no room"):
        Builder(tmp_path, read_stages(text)).build("two")


def test_a_file_that_is_not_there_to_copy_is_told(tmp_path: Path) -> None:
    builder = Builder(tmp_path, read_stages(TEXT.replace("COPY LICENSE", "COPY LICENCE")))
    with pytest.raises(Failed, match="there is no LICENCE"):
        builder.build("one")
