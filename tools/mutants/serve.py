"""Faults of the server: batching, what is shared, what is refused, the end of requests."""

from __future__ import annotations

from mutants.fault import Fault

COMPANY = ("serve/test_company.py",)
READING = ("decode/test_reading.py", "serve/test_company.py")
LIMITS = ("serve/test_limits.py",)

SERVE: tuple[Fault, ...] = (
    Fault(
        "decode/reading.py",
        (
            "        sequence.ahead.append(Observation(start=start, tokens=tokens, "
            "hidden=output.hidden))\n"
        ),
        (
            "        sequence.drafting.observe(Observation(start=start, tokens=tokens, "
            "hidden=output.hidden))\n"
        ),
        (
            "a drafter hears of a prompt's pieces before the first round, and its drafts "
            "depend on them"
        ),
        READING,
    ),
    Fault(
        "decode/batch.py",
        "                left -= min(left, sample.unread - 1)\n",
        "",
        "the pieces of several prompts in one round have no bound together",
        COMPANY,
    ),
    Fault(
        "decode/reading.py",
        "    if is_to_be_scored(sequence):\n        yield from read_scored(sequence, count)\n",
        "    if is_to_be_scored(sequence):\n        yield from read_scored(sequence)\n",
        "a prompt that is to be scored is read at once",
        COMPANY,
    ),
    Fault(
        "serve/prefix_cache.py",
        "return common if common >= LEAST_SHARED else 0",
        "return 0",
        "requests with a beginning in common do not wait for the one that reads it",
        COMPANY,
    ),
    Fault(
        "serve/scheduler.py",
        (
            "            if work.cancel.is_set() and work.first is None:  # nobody is left "
            "to hear of it\n"
        ),
        "            if False:\n",
        "a client that went away while it waited is told of an end",
        COMPANY,
    ),
    Fault(
        "decode/samples.py",
        "tuple(generation.logprobs[shown:])",
        "tuple(generation.logprobs)",
        "every part of a stream repeats the log-probabilities before it",
        ("serve/test_completions.py",),
    ),
    Fault(
        "serve/prefix_cache.py",
        "        begins = wanted[:-1]\n",
        "        begins = wanted\n",
        "a copy has read the whole prompt and leaves no token to go on from",
        COMPANY,
    ),
    Fault(
        "serve/prefix_cache.py",
        "        if number is not None:\n            self._entries.move_to_end(number)\n",
        "",
        "the first that was kept goes, however recently it was used",
        COMPANY,
    ),
    Fault(
        "serve/usage.py",
        "if (record.drafter or method) == PREDICTION",
        "if record.draft_tokens",
        "drafts of any drafter count as taken from the prediction",
        ("serve/test_chat.py",),
    ),
    Fault(
        "serve/worker.py",
        "self.num_waiting + self.scheduler.num_running >= self._most",
        "self.num_waiting + self.scheduler.num_running > self._most",
        "the queue takes one more than it may",
        LIMITS,
    ),
    Fault(
        "serve/running.py",
        "        self._cancel.set()\n",
        "",
        "texts of clients that went away, or whose time is over, go on",
        LIMITS,
    ),
    Fault(
        "serve/params.py",
        '        values.setdefault("top_k", 0)',
        '        values.setdefault("top_k", 50)',
        "transformers' silent top_k cuts every law",
        ("serve/test_completions.py",),
    ),
    Fault(
        "serve/chat.py",
        "call_grammar(body, parser) if parser is not None and is_forced(body) else None",
        "None",
        "a call that is asked for is left to the model",
        ("serve/test_chat.py",),
    ),
    Fault(
        "serve/forced_calls.py",
        "    return found[:1]\n",
        "    return tools\n",
        "a named tool is asked for, and any may be called",
        ("serve/test_chat.py",),
    ),
    Fault(
        "serve/service.py",
        "bool(prediction_text(body))",
        "body.prediction is not None",
        "an empty prediction puts the server's own drafts away",
        ("serve/test_chat.py",),
    ),
    Fault(
        "serve/chat.py",
        'if choice == "none":\n        return None',
        'if choice == "none":\n        return body.tools',
        "tool_choice none shows the tools and calls them",
        ("serve/test_chat.py",),
    ),
    Fault(
        "serve/decoders.py",
        "if unknown:",
        "if False:",
        "a request may name files and weights",
        ("serve/test_refusals.py",),
    ),
)
