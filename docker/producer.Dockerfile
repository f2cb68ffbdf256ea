FROM python:3.11-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY producer producer
COPY spark_jobs spark_jobs
COPY tidemark tidemark
RUN pip install --no-cache-dir '.[producer]' && rm -rf /src/*
# Kernels are compiled at the first start and kept here.
ENV NUMBA_CACHE_DIR=/var/cache/tidemark
RUN useradd --system tidemark && mkdir /var/cache/tidemark && chown tidemark /var/cache/tidemark
USER tidemark
ENTRYPOINT ["tidemark"]
CMD ["run", "--config", "/etc/tidemark.yaml"]
