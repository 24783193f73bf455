# docker build -t bytescope . && docker run --gpus all -p 127.0.0.1:8501:8501 bytescope
# For the GPU's counters add --cap-add SYS_ADMIN, or better let the driver permit them: see docs/security.md.
FROM python:3.11-slim-bookworm

# Triton compiles a small launcher at run time, so a C compiler with libc's headers stays in the image.
# Debian drops superseded versions from its archive; a pinned one would soon not build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libcap2-bin \
    && rm -rf /var/lib/apt/lists/*

# Docker gives an added capability to root alone. The GPU's counters need it in a process of this image's plain user,
# so this copy of setpriv may take it where --cap-add offers it, and the entry point hands it on. Without --cap-add,
# which is the rule, the copy gets nothing, and nothing here has any right.
RUN cp /usr/bin/setpriv /usr/local/bin/setpriv-counters \
    && setcap cap_sys_admin+p /usr/local/bin/setpriv-counters

RUN useradd --create-home --uid 1000 bytescope \
    && install -d -o bytescope -g bytescope /data/runs

WORKDIR /bytescope
COPY requirements.lock .
RUN pip install --no-cache-dir --root-user-action=ignore --require-hashes -r requirements.lock
COPY .streamlit .streamlit
COPY kernels kernels
COPY profiler profiler
COPY app app
COPY examples examples

ENV BYTESCOPE_RUNS=/data/runs \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 1000
VOLUME /data/runs
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=2)"]
ENTRYPOINT ["/bin/sh", "-c", "with='setpriv-counters --inh-caps=+sys_admin --ambient-caps=+sys_admin'; $with true 2>/dev/null && exec $with \"$@\"; exec \"$@\"", "--"]
CMD ["python", "-m", "streamlit", "run", "app/main.py", \
    "--server.address", "0.0.0.0", "--browser.serverAddress", "127.0.0.1", "--server.headless", "true"]
