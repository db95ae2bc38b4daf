# The images from one file, by --target:
#   api          API, dispatcher, fetcher and the commands; no torch
#   flower       Flower, to look at the queues
#   worker       the Transformers engine, on a GPU or a CPU
#   worker-vllm  vLLM's engine
# What is built on (a virtual environment in /opt/vqueue) is made in one stage and copied into a bare one.
ARG PYTHON=3.12.12-slim-bookworm
ARG VLLM=v0.32.0

FROM python:${PYTHON} AS tools
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY deploy/constraints.txt deploy/requirements.py pyproject.toml ./
RUN python -m venv --without-pip /opt/vqueue

# The dependencies alone, as a layer that survives changes of the code.
FROM tools AS build
RUN python requirements.py tracing >base.txt \
    && pip --python /opt/vqueue/bin/python install --constraint constraints.txt --requirement base.txt

FROM tools AS wheel
RUN pip install --constraint constraints.txt setuptools
COPY README.md LICENSE ./
COPY migrations migrations
COPY vqueue vqueue
COPY workers workers
COPY app app
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS api-build
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/vqueue/bin/python install --no-deps /wheels/*.whl

FROM tools AS flower-build
RUN pip --python /opt/vqueue/bin/python install --constraint constraints.txt "celery[redis]" flower

FROM build AS worker-build
# The index of the torch build to install, such as PyTorch's own for the CPU or for a CUDA version; see
# docs/models.md. Left empty, it is the one that pip knows.
ARG TORCH_INDEX=""
RUN pip --python /opt/vqueue/bin/python install --constraint constraints.txt \
    ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} torch
RUN python requirements.py worker gpu >worker.txt \
    && pip --python /opt/vqueue/bin/python install --constraint constraints.txt --requirement worker.txt
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/vqueue/bin/python install --no-deps /wheels/*.whl

# A model that is baked in, by its name on the Hugging Face hub; nothing where none is named.
FROM tools AS weights
ARG WEIGHTS=""
ENV HF_HOME=/weights
RUN mkdir /weights \
    && if [ -n "${WEIGHTS}" ]; then \
        pip install --constraint constraints.txt huggingface_hub \
        && hf download "${WEIGHTS}" --include "*.json" "*.jinja" "merges.txt" "*.safetensors"; \
    fi

FROM python:${PYTHON} AS bare
ENV PATH=/opt/vqueue/bin:${PATH} HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 vqueue \
    && useradd --uid 10001 --gid vqueue --home-dir /tmp --no-create-home --shell /usr/sbin/nologin vqueue
WORKDIR /srv/vqueue
USER 10001:10001

FROM bare AS api
COPY --from=api-build /opt/vqueue /opt/vqueue
EXPOSE 8000 9090
CMD ["vqueue", "api"]

FROM bare AS flower
COPY --from=flower-build /opt/vqueue /opt/vqueue
EXPOSE 5555
CMD ["celery", "flower"]

FROM bare AS worker
ARG WEIGHTS=""
# With weights baked in, nothing asks the hub.
ENV HF_HOME=/weights HF_HUB_OFFLINE=${WEIGHTS:+1}
COPY --from=worker-build /opt/vqueue /opt/vqueue
COPY models models
# A volume that is mounted here begins with what lies here, and belongs to its first owner.
COPY --from=weights --chown=10001:10001 /weights /weights
EXPOSE 9090
CMD ["vqueue", "worker"]

# vLLM compiles kernels when it starts, so its own image has compilers, and stays as it is: vqueue is put beside it.
# Torch names its cache after the user, who has no line in that image's list of users: hence USER.
FROM vllm/vllm-openai:${VLLM} AS worker-vllm
ARG WEIGHTS=""
ENV PATH=/opt/vqueue/bin:${PATH} HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 \
    HF_HOME=/weights HF_HUB_OFFLINE=${WEIGHTS:+1} USER=vqueue
WORKDIR /srv/vqueue
COPY --from=wheel /wheels /wheels
COPY deploy/requirements.py pyproject.toml ./
RUN python3 -m venv --without-pip --system-site-packages /opt/vqueue \
    && python3 requirements.py --beside worker gpu tracing >beside.txt \
    && python3 -m pip freeze >all.txt \
    && grep -E '^(torch|torchvision|transformers|tokenizers|fastapi|starlette|numpy|llguidance)==' all.txt >kept.txt \
    && python3 -m pip --python /opt/vqueue/bin/python install --constraint kept.txt --requirement beside.txt \
    && python3 -m pip --python /opt/vqueue/bin/python install --no-deps /wheels/*.whl
COPY --from=weights --chown=10001:10001 /weights /weights
USER 10001:10001
EXPOSE 9090
ENTRYPOINT []
CMD ["vqueue", "worker"]
