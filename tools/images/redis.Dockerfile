# A Redis for tests on a node: this machine's server and client, and the libraries that they are linked with.
FROM scratch
COPY --chown=65532:65532 root /
ENV PATH=/
WORKDIR /data
USER 65532:65532
ENTRYPOINT ["redis-server"]
CMD ["--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/data"]
