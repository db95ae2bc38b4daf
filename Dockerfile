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
# A CPU build by default. For GPUs: --build-arg TORCH_INDEX=
ARG TORCH_INDEX=
RUN pip install --index-url ${TORCH_INDEX} torch==2.13.0
RUN pip install ".[worker,gpu]"
COPY models models
USER vqueue
CMD ["vqueue", "worker"]
