"""llama.cpp's HTTP server as the package xllamacpp has it, with llama-server's own options.

python benchmarks/peers/xllamacpp_server.py --model model.gguf --port 8081 --parallel 4
"""

from __future__ import annotations

import argparse
import signal

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--threads-batch", type=int, default=2)
    given = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.hostnames, params.port = [given.host], given.port
    params.n_parallel, params.n_ctx = given.parallel, given.ctx_size
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.threads_batch
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
