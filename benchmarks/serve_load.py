"""Servers under load: open arrivals of 1, 4, 16 and 64 clients, every server in turn at each load.

    python benchmarks/serve_load.py run RAW --server NAME=URL=MODEL ... [--seconds 60]
    python benchmarks/serve_load.py report RAW

Each of the N clients sends its next request at random times, `--gap` seconds apart on average,
whether or not it has its answer (Poisson arrivals; the same times and prompts for every server):
streamed, greedy, `--tokens` tokens, ends ignored, prompts from `prompts/four_tasks.jsonl`. What is
on its way when the time is over is left. Tokens a second count what came within the time; TTFT and
TPOT are of requests that ended. Works with any server that speaks /v1/completions."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from raw_lines import append, read

LOADS = (1, 4, 16, 64)
PROMPTS = Path(__file__).parent / "prompts" / "four_tasks.jsonl"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = arguments.add_subparsers(dest="verb", required=True)
    run_it, report_it = verbs.add_parser("run"), verbs.add_parser("report")
    for verb in (run_it, report_it):
        verb.add_argument("raw", type=Path)
    run_it.add_argument("--server", action="append", required=True)
    run_it.add_argument("--seconds", type=float, default=60)
    run_it.add_argument("--gap", type=float, default=8)
    run_it.add_argument("--tokens", type=int, default=32)
    run_it.add_argument("--loads", type=int, nargs="+", default=LOADS)
    args = arguments.parse_args()
    if args.verb == "report":
        print(table(read(args.raw)))
        return
    servers = [one.split("=", 2) for one in args.server]
    for number, clients in enumerate(args.loads):
        turned = servers[number % len(servers) :] + servers[: number % len(servers)]
        for name, url, model in turned:
            line = asyncio.run(load(url, model, clients, args))
            append(args.raw, {"server": name, "clients": clients} | line)
            print(name, clients, flush=True)


async def load(url: str, model: str, clients: int, args: argparse.Namespace) -> dict[str, Any]:
    """One server under one load."""
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    arrivals = sorted(
        (moment, random.choice(prompts))
        for random in (Random(client) for client in range(clients))
        for moment in moments(random, args)
    )
    asked = {"model": model, "max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    begin = time.perf_counter()

    async def one(moment: float, prompt: str) -> dict[str, Any]:
        await asyncio.sleep(moment - (time.perf_counter() - begin))
        return await request(url, asked | {"prompt": prompt}, begin)

    jobs = [asyncio.create_task(one(*arrival)) for arrival in arrivals]
    await asyncio.sleep(args.seconds)
    done = [job.result() for job in jobs if job.done() and not job.exception()]
    failed = [repr(job.exception()) for job in jobs if job.done() and job.exception()]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    await asyncio.sleep(2)
    return {"seconds": args.seconds, "asked": len(jobs), "failed": failed[:3], "requests": done}


def moments(random: Random, args: argparse.Namespace) -> list[float]:
    found, moment = [], random.uniform(0, min(args.gap, args.seconds / 2))
    while moment < args.seconds:
        found.append(moment)
        moment += random.expovariate(1 / args.gap)
    return found


async def request(url: str, body: dict[str, Any], begin: float) -> dict[str, Any]:
    """When it was sent, when its first and last parts came, and how many tokens it had."""
    place, data = urlsplit(url), json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**22)
    try:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        sent = time.perf_counter()
        writer.write(head.encode() + data)
        first = last = 0.0
        tokens = 0
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            part = json.loads(line[6:])
            if part.get("usage"):
                tokens = part["usage"]["completion_tokens"]
            if part["choices"] and part["choices"][0]["text"]:
                last = time.perf_counter()
                first = first or last
        if not tokens:
            raise ValueError("no tokens")
        return {"sent": sent - begin, "first": first - sent, "whole": last - sent, "tokens": tokens}
    finally:
        writer.transport.abort()


def table(lines: list[dict[str, Any]]) -> str:
    rows = [
        "| clients | server | done of asked | tokens a second "
        "| TTFT p50, p99 (s) | TPOT p50, p99 (ms) |",
        "|---|---|---|---|---|---|",
    ]
    for line in sorted(lines, key=lambda line: line["clients"]):
        done = line["requests"]
        rate = sum(each["tokens"] for each in done) / line["seconds"]
        waits = sorted(each["first"] for each in done) or [float("nan")]
        paces = sorted(
            1e3 * (each["whole"] - each["first"]) / max(each["tokens"] - 1, 1) for each in done
        ) or [float("nan")]
        rows.append(
            f"| {line['clients']} | {line['server']} | {len(done)} of {line['asked']} | {rate:.1f} "
            f"| {at(waits, 0.5):.2f}, {at(waits, 0.99):.2f} "
            f"| {at(paces, 0.5):.0f}, {at(paces, 0.99):.0f} |"
        )
    return "\n".join(rows)


def at(values: list[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


if __name__ == "__main__":
    main()
