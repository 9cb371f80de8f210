# One image for every role; the role is the verb: docker run twelvefold worker --lane steps
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app
WORKDIR /app

# Pinned by hash. The lock has one set of packages for all uses, those of development among them.
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

# The code belongs to root and the processes do not run as root, so none of them can change it.
RUN useradd --system --uid 10001 --no-create-home twelvefold && install -d -o 10001 -m 700 /data
COPY twelvefold/ ./twelvefold/
COPY workers/ ./workers/
COPY agents/ ./agents/
COPY triggers/ ./triggers/
COPY delivery/ ./delivery/
COPY prompts/ ./prompts/
COPY migrations/ ./migrations/
COPY console/ ./console/
USER 10001

ENTRYPOINT ["python", "-m", "console.cli"]
CMD ["--help"]
