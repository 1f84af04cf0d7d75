# The README's two commands in a container:
#   docker build --tag federated-hh .
#   docker run --rm federated-hh
#   docker run --rm federated-hh ./scripts/test
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /federated-hh
COPY . .
RUN ./scripts/run --version
# Puts ray on the PATH of a cluster's pods.
ENV PATH=/federated-hh/.venv/bin:$PATH
CMD ["./scripts/run", "triehh", "--flagfile=configs/triehh_demo.flagfile"]
