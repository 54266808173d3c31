"""A server among hostile requests, and for a long time.

    python benchmarks/serve_hostile.py --target FOLDER [--requests 10000] [--tokens 1000000]
        [--seconds 900] [--out RAW]

Starts `draftproof serve` on FOLDER. First some texts are asked for alone; they are what every later
answer to the same question has to be. Then hostile requests (`hostile_requests.py`) and these
questions come mixed, 32 at a time; then questions only, until so many tokens are written; then
SIGTERM, while some are being answered. Reported: what was answered how, faults (a 5xx, another
text, a question without an answer, a crash), and the server's memory by tenths of the run."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hostile_requests import Hostile, hostile, post
from raw_lines import append

TOGETHER = 32
GOOD_SHARE = 0.1
ANSWERED = (200, 400, 404, 405, 408, 413, 415, 429, 431)
"""What a hostile request may be told."""


@dataclass
class Tally:
    """What came of everything."""

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    good: int = 0
    tokens: int = 0
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Share of the run, and MiB resident."""


class Target:
    """A server's address, and the questions whose answers are known."""

    def __init__(self, port: int, random: Random, questions: int = 24) -> None:
        self.port, self.tally = port, Tally()
        self.questions = [question(random, number) for number in range(questions)]
        self.known: dict[int, str] = {}

    async def learn(self) -> None:
        """Ask each question alone."""
        for number, body in enumerate(self.questions):
            self.known[number] = (await self.ask(body))[1]

    async def ask(self, body: dict[str, Any]) -> tuple[int, str, int]:
        """Status, the text of all choices, and tokens written."""
        answer = await self.send(Hostile("a question", post(json.dumps(body).encode())))
        head, _, content = answer.partition(b"\r\n\r\n")
        status = int(head[9:12] or 0)
        if status != 200:
            return status, content.decode("utf-8", "replace")[:200], 0
        if not body.get("stream"):
            whole = json.loads(content)
            said = [choice["text"] for choice in whole["choices"]]
            return status, json.dumps(said), whole["usage"]["completion_tokens"]
        return status, *streamed(content)

    async def check(self, number: int) -> None:
        """Ask a question again: is its answer what it was?"""
        try:
            status, text, tokens = await asyncio.wait_for(self.ask(self.questions[number]), 120)
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            self.tally.faults.append(f"question {number}: {type(error).__name__} {error}"[:200])
            return
        if status == 429:
            self.tally.answers["a question: 429"] += 1
            return
        self.tally.good += 1
        self.tally.tokens += tokens
        if status != 200 or text != self.known[number]:
            self.tally.faults.append(f"question {number}: {status}, {text[:100]}")

    async def annoy(self, request: Hostile) -> None:
        try:
            answer = await asyncio.wait_for(self.send(request), 60)
        except OSError:
            self.tally.answers[f"{request.kind}: closed"] += 1
            return
        except asyncio.TimeoutError:
            self.tally.faults.append(f"{request.kind}: no answer in a minute")
            return
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        self.tally.answers[f"{request.kind}: {status or 'left'}"] += 1
        if (status and status not in ANSWERED) or (request.leaves is None and not answer):
            body = answer.partition(b"\r\n\r\n")[2][:150]
            self.tally.faults.append(
                f"{request.kind}: {status} {body!r} to {request.data[-200:]!r}"
            )

    async def send(self, request: Hostile) -> bytes:
        """What the server says before it or the client closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await said(writer, request)
            if request.leaves is None:
                return await reader.read(-1)
            try:
                wanted = request.reads or 1
                return await asyncio.wait_for(reader.read(wanted), request.leaves)
            except asyncio.TimeoutError:
                return b""
            finally:
                await asyncio.sleep(request.leaves if request.reads else 0)
        finally:
            writer.transport.abort() if request.leaves is not None else writer.close()


async def said(writer: asyncio.StreamWriter, request: Hostile) -> None:
    try:
        if not request.drip:
            writer.write(request.data)
        for place in range(0, len(request.data), 40) if request.drip else ():
            writer.write(request.data[place : place + 40])
            await asyncio.sleep(0.01)
        await writer.drain()
    except ConnectionError:
        pass  # refused before all was said: the answer may be there


def question(random: Random, number: int) -> dict[str, Any]:
    """Every one has a mark of its own in its prompt, which no other answer may bring."""
    words = " ".join(random.choice(["time", "flies", "like", "an", "arrow"]) for _ in range(20))
    more: dict[str, Any] = (
        {"n": 2} if number % 3 == 0 else {"stream": True} if number % 3 == 1 else {}
    )
    more |= {"temperature": 0.0} if number % 4 == 0 and "n" not in more else {"temperature": 1.0}
    more |= {"prediction": words} if number % 5 == 0 else {}
    more |= {"echo": True} if number % 2 == 0 and "stream" not in more else {}
    prompt = f"mark-{number:04d} {words}"
    return {"prompt": prompt, "max_tokens": 100, "ignore_eos": True, "seed": number} | more


def streamed(content: bytes) -> tuple[str, int]:
    """Text and tokens of a stream; the bytes still have the marks of their pieces."""
    pieces = re.findall(rb"^data: (\{.*\})\r?$", content, re.MULTILINE)
    if b"data: [DONE]" not in content:
        raise ValueError("the stream has no end")
    texts = [json.loads(piece)["choices"][0]["text"] for piece in pieces]
    return json.dumps(["".join(texts)]), 100


async def storm(target: Target, count: int, random: Random, pid: int) -> None:
    """So many hostile requests, with questions between them."""
    free = asyncio.Semaphore(TOGETHER)

    async def one(job: Any) -> None:
        async with free:
            await job

    jobs: set[asyncio.Task[None]] = set()
    for number in range(count):
        if number % (max(count, 10) // 10) == 0:
            target.tally.memory.append((number / count, resident(pid)))
        chosen = [target.annoy(hostile(random))]
        if random.random() < GOOD_SHARE:
            chosen.append(target.check(random.randrange(len(target.questions))))
        jobs |= {asyncio.create_task(one(job)) for job in chosen}
        while len(jobs) > 4 * TOGETHER:
            _, jobs = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*jobs)
    target.tally.memory.append((1.0, resident(pid)))


async def soak(target: Target, tokens: int, seconds: float, random: Random, pid: int) -> None:
    """Questions alone until so many tokens have come, or time is over."""
    end, begun, marks = time.monotonic() + seconds, target.tally.tokens, 0

    async def worker() -> None:
        nonlocal marks
        while (done := target.tally.tokens - begun) < tokens and time.monotonic() < end:
            if done * 10 >= marks * tokens:
                target.tally.memory.append((1 + marks / 10, resident(pid)))
                marks += 1
            await target.check(random.randrange(len(target.questions)))

    await asyncio.gather(*(worker() for _ in range(TOGETHER)))
    target.tally.memory.append((2.0, resident(pid)))


async def end(target: Target, process: subprocess.Popen[str]) -> dict[str, Any]:
    """SIGTERM while all questions are being answered."""
    asked = [asyncio.create_task(target.check(number)) for number in range(len(target.questions))]
    before = target.tally.good
    await asyncio.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*asked)
    try:
        await target.ask(target.questions[0])
        refused = False
    except OSError:
        refused = True
    code = await asyncio.to_thread(process.wait, 60)
    finished = target.tally.good - before
    return {"finished": finished, "asked": len(asked), "refuses": refused, "exit_code": code}


def resident(pid: int) -> float:
    """MiB that the process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def start(target: str, flags: list[str], log: Path) -> tuple[subprocess.Popen[str], int]:
    """The server and its port; its log goes to a file."""
    command = [sys.executable, "-m", "draftproof", "serve", "--port", "0", "--dtype", "float32"]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen([*command, "--target", target, *flags], stderr=file, text=True)
    for _ in range(1200):
        found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8"))
        if found:
            time.sleep(1)
            return process, int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start: {log}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--target", required=True)
    arguments.add_argument("--requests", type=int, default=10_000)
    arguments.add_argument("--tokens", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=float, default=900)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--log", type=Path, default=Path("serve_hostile.log"))
    arguments.add_argument("--out", type=Path)
    args = arguments.parse_args()
    flags = ["--max-num-seqs", "16", "--method", "suffix", "--prefix-cache-mb", "16"]
    process, port = start(args.target, flags, args.log)
    try:
        line = asyncio.run(run(args, process, port))
    finally:
        process.kill()
    if args.out is not None:
        append(args.out, line)
    print(json.dumps(line))


async def run(
    args: argparse.Namespace, process: subprocess.Popen[str], port: int
) -> dict[str, Any]:
    random = Random(args.seed)
    target, begun = Target(port, random), time.monotonic()
    await target.learn()
    await storm(target, args.requests // 10, random, process.pid)  # to warm up
    warm, target.tally.memory = target.tally.memory, []
    await storm(target, args.requests - args.requests // 10, random, process.pid)
    middle = time.monotonic()
    before = target.tally.tokens
    await soak(target, args.tokens, args.seconds, random, process.pid)
    soaked = target.tally.tokens - before
    seconds = time.monotonic() - middle
    ended = await end(target, process)
    log, tally = args.log.read_text(encoding="utf-8"), target.tally
    return {
        "requests": args.requests,
        "storm_seconds": round(middle - begun, 1),
        "questions": tally.good,
        "tokens": tally.tokens,
        "soak": {"tokens": soaked, "seconds": round(seconds, 1)},
        "answers": dict(sorted(tally.answers.items())),
        "faults": tally.faults[:50],
        "num_faults": len(tally.faults),
        "tracebacks": log.count("Traceback"),
        "memory_mib_warming": [round(mib, 1) for _, mib in warm],
        "memory_mib": [(round(share, 2), round(mib, 1)) for share, mib in tally.memory],
        "end": ended,
    }


if __name__ == "__main__":
    main()
