"""torch's bf16 product x[M, K] · W[N, K]^T on cold weights, to stand beside assay_gemv_bench.

    python bench/peers/gemv_torch.py --shape 16384,4096 --m 1 --threads 1 --rounds 20

One thread: CPU time of the thread, as assay_gemv_bench counts it; more: wall time. Weights rotate over
more than --cold MiB. Needs torch (CPU).
"""

import argparse
import statistics
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="16384,4096")
    parser.add_argument("--m", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cold", type=int, default=640)
    args = parser.parse_args()
    rows, cols = (int(n) for n in args.shape.split(","))
    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    copies = (args.cold << 20) // (rows * cols * 2) + 1
    weights = [torch.randn(rows, cols).to(torch.bfloat16) for _ in range(copies)]
    x = torch.randn(args.m, cols).to(torch.bfloat16)
    samples = []
    with torch.inference_mode():
        for i in range(args.rounds + 2):
            begin = clock()
            torch.nn.functional.linear(x, weights[i % copies])
            samples.append((clock() - begin) * 1e3)
    samples = sorted(samples[2:])
    print(
        f"torch {torch.__version__} bf16 N={rows} K={cols} M={args.m} threads={args.threads}: "
        f"median {statistics.median(samples):.3f} ms, fastest tenth {samples[len(samples) // 10]:.3f} ms"
    )


if __name__ == "__main__":
    main()
