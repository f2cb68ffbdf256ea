FROM eclipse-temurin:17-jre AS jre

FROM python:3.11-slim
COPY --from=jre /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:$PATH TIDEMARK_CACHE=/opt/tidemark
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY producer producer
COPY spark_jobs spark_jobs
COPY tidemark tidemark
# The jars of the lock file become part of the image: nothing is fetched at the start.
RUN pip install --no-cache-dir '.[spark]' && python -m tidemark.embedded fetch spark && rm -rf /src/*
RUN useradd --system tidemark && mkdir /lake && chown -R tidemark /lake /opt/tidemark
USER tidemark
ENTRYPOINT ["tidemark"]
CMD ["merge", "--config", "/etc/tidemark.yaml"]
