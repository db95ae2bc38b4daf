# Two images from one file: `--target api` (API, dispatcher, fetcher, commands; no torch) and `--target worker`.
ARG PYTHON=3.12-slim-bookworm

FROM python:${PYTHON} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --system --uid 10001 --create-home vqueue
WORKDIR /srv/vqueue
COPY pyproject.toml README.md LICENSE ./
# The dependencies alone, as a layer that survives changes of the code.
RUN mkdir app && touch app/__init__.py && pip install . && rm -r app
COPY migrations migrations
COPY workers workers
COPY app app

FROM base AS api
RUN pip install --no-deps .
USER vqueue
EXPOSE 8000
CMD ["vqueue", "api"]

FROM base AS worker
# The index of the torch build to install, such as PyTorch's own for the CPU or for a CUDA version; see
# docs/models.md. Left empty, it is the one that pip knows.
ARG TORCH_INDEX=""
RUN pip install ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} torch==2.13.0
RUN pip install ".[worker,gpu]"
COPY models models
# A volume that is mounted here belongs to its first owner.
RUN mkdir /models && chown vqueue /models
USER vqueue
CMD ["vqueue", "worker"]
