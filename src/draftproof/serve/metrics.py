"""Counts and times in Prometheus' text format, under vLLM's names, so that dashboards made for it
read them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from draftproof.serve.scheduler import Seen, Work

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)

GAUGES = {
    "num_requests_running": "Texts that are being written.",
    "num_requests_waiting": "Texts that wait to begin.",
    "kv_cache_usage_perc": "Share of the tokens that all sessions together could hold (1 is full).",
}
COUNTERS = {
    "prompt_tokens": "Tokens of prompts.",
    "generation_tokens": "Tokens written.",
    "prefix_cache_queries": "Tokens of prompts looked up among what was read before.",
    "prefix_cache_hits": "Tokens of prompts that were found there.",
    "spec_decode_num_drafts": "Rounds that had a draft.",
    "spec_decode_num_draft_tokens": "Tokens drafted.",
    "spec_decode_num_accepted_tokens": "Tokens of drafts that were accepted.",
}
TIMES = {
    "time_to_first_token_seconds": "From a request's arrival to its first token.",
    "inter_token_latency_seconds": (
        "Between two rounds of a text, shared among the tokens of the second."
    ),
    "request_time_per_output_token_seconds": (
        "Of whole texts: time after the first round by token after it."
    ),
    "e2e_request_latency_seconds": "From a request's arrival to the end of a text.",
    "request_queue_time_seconds": "From a request's arrival to its beginning.",
    "request_prefill_time_seconds": "From a request's beginning to its first token.",
    "request_decode_time_seconds": "From a request's first token to the end of a text.",
}
SIZES = {
    "request_prompt_tokens": "Tokens of a prompt.",
    "request_generation_tokens": "Tokens of a text.",
    "iteration_tokens_total": "Tokens that a text got in a round.",
}
LABELS = ("model_name", "engine")


class Metrics:
    """Of one server, in a registry of its own."""

    def __init__(self, model: str) -> None:
        self._registry, self._model = CollectorRegistry(), model
        self._gauges = {
            name: Gauge(f"vllm:{name}", text, LABELS, registry=self._registry)
            for name, text in GAUGES.items()
        }
        counters = {
            name: Counter(f"vllm:{name}", text, LABELS, registry=self._registry)
            for name, text in COUNTERS.items()
        }
        self._counters = {name: counter.labels(model, "0") for name, counter in counters.items()}
        times = {
            name: Histogram(f"vllm:{name}", text, LABELS, registry=self._registry, buckets=SECONDS)
            for name, text in TIMES.items()
        }
        sizes = {
            name: Histogram(f"vllm:{name}", text, LABELS, registry=self._registry, buckets=TOKENS)
            for name, text in SIZES.items()
        }
        self._spread = {
            name: histogram.labels(model, "0") for name, histogram in (times | sizes).items()
        }
        self._by_position = self._labelled(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "The same by place in the draft.",
            "position",
        )
        self._ended = self._labelled(
            "vllm:request_success", "Texts that ended, by why.", "finished_reason"
        )
        self._answers = self._labelled(
            "draftproof:http_responses", "Answers, by endpoint and status.", "endpoint", "status"
        )

    def _labelled(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, (*LABELS, *labels), registry=self._registry)

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Ask `value` for a gauge whenever metrics are read."""
        self._gauges[name].labels(self._model, "0").set_function(value)

    def count(self, name: str, amount: float) -> None:
        self._counters[name].inc(amount)

    def answered(self, endpoint: str, status: int) -> None:
        self._answers.labels(self._model, "0", endpoint, str(status)).inc()

    def row(self, seen: Seen) -> None:
        """A text had a round, or ended."""
        for record in seen.rounds:
            accepted = record.num_accepted_tokens + record.num_accepted_after_end
            self.count("generation_tokens", len(record.tokens))
            self._spread["iteration_tokens_total"].observe(len(record.tokens))
            if record.draft_tokens:
                self.count("spec_decode_num_drafts", 1)
                self.count("spec_decode_num_draft_tokens", len(record.draft_tokens))
                self.count("spec_decode_num_accepted_tokens", accepted)
            for place in range(accepted):
                self._by_position.labels(self._model, "0", str(place)).inc()
            if seen.seconds is not None and record.tokens:
                self._spread["inter_token_latency_seconds"].observe(
                    seen.seconds / len(record.tokens)
                )
        if seen.seconds is None and seen.rounds:
            self._first(seen.work)
        if seen.completion is not None:
            self._end(seen)

    def _first(self, work: Work) -> None:
        assert work.first is not None and work.begun is not None
        self.count("prompt_tokens", len(work.request.prompt_token_ids))
        self._spread["request_prompt_tokens"].observe(len(work.request.prompt_token_ids))
        self._spread["time_to_first_token_seconds"].observe(work.first - work.queued)
        self._spread["request_queue_time_seconds"].observe(work.begun - work.queued)
        self._spread["request_prefill_time_seconds"].observe(work.first - work.begun)

    def _end(self, seen: Seen) -> None:
        assert seen.completion is not None
        work, done = seen.work, seen.completion
        self._ended.labels(self._model, "0", done.finish_reason).inc()
        now = perf_counter()
        self._spread["e2e_request_latency_seconds"].observe(now - work.queued)
        self.count("prefix_cache_queries", len(work.request.prompt_token_ids))
        self.count("prefix_cache_hits", done.num_cached_tokens)
        self._spread["request_generation_tokens"].observe(len(done.token_ids))
        if work.first is not None:
            self._spread["request_decode_time_seconds"].observe(now - work.first)
        if done.decode_tokens_per_second:
            self._spread["request_time_per_output_token_seconds"].observe(
                1 / done.decode_tokens_per_second
            )

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)
