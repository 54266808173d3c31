#!/bin/bash
# The head that comes with the package: EAGLE-3 for the default model, trained on text that model writes here.
#
#   benchmarks/train_default_head.sh [FOLDER]
#
# Every step goes on where it was interrupted. PROMPTS names a file of prompts to answer beside the target's own and the built-in
# ones. The defaults are meant for a night on a few cores; smaller settings (see tests/cli/test_train.py) go through the same motions.
set -euo pipefail

FOLDER=${1:-default-head}
DRAFTPROOF=${DRAFTPROOF:-draftproof}
TARGET=${TARGET:-smollm2-135m-instruct}
MAX_TOKENS=${MAX_TOKENS:-256}
STEPS=${STEPS:-1300}
EVALUATE_EVERY=${EVALUATE_EVERY:-500}
DRAFT_VOCAB_SIZE=${DRAFT_VOCAB_SIZE:-8192}
BATCH_SIZE=${BATCH_SIZE:-2}
CACHE_GB=${CACHE_GB:-20}
LIMIT=${LIMIT:-}
INVENTED=${INVENTED:-3200}

# 1. The target makes up questions: most of what a chat model is asked is like them.
mkdir -p "$FOLDER"
$DRAFTPROOF train prompts --target "$TARGET" --count "$INVENTED" --dtype float32 --out "$FOLDER/invented.jsonl"
cat ${PROMPTS:+"$PROMPTS"} "$FOLDER/invented.jsonl" > "$FOLDER/prompts.jsonl"

# 2. The target answers; its own text is what its drafts will be verified against.
$DRAFTPROOF train data --target "$TARGET" --data "$FOLDER/prompts.jsonl" --builtin chat --builtin code --builtin summary \
    ${LIMIT:+--limit "$LIMIT"} --max-tokens "$MAX_TOKENS" --dtype float32 --out "$FOLDER/texts"

# 3. The head, in five passes over the texts, the last two for acceptance itself, at the temperatures the texts were written at, and
#    the mean of these two; states stay on disk between them; checks and card at the end.
train() {
    $DRAFTPROOF train eagle3 --target "$TARGET" --data "$FOLDER/texts" --cache "$FOLDER/states" --cache-gb "$CACHE_GB" \
        --draft-vocab-size "$DRAFT_VOCAB_SIZE" --max-length 700 --batch-size "$BATCH_SIZE" \
        --steps "$STEPS" --evaluate-every "$EVALUATE_EVERY" --patience 0 "$@"
}
train --learning-rate 3e-3 --unroll 2 --out "$FOLDER/first"
train --learning-rate 2e-3 --unroll 3 --early-unroll 2 --start "$FOLDER/first" --out "$FOLDER/second"
train --learning-rate 1.5e-3 --unroll 3 --start "$FOLDER/second" --out "$FOLDER/third"
train --learning-rate 6e-4 --unroll 3 --loss total_variation --loss-temperature own --start "$FOLDER/third" --out "$FOLDER/fourth"
train --learning-rate 1e-3 --unroll 3 --loss total_variation --loss-temperature own --start "$FOLDER/fourth" --average-start \
    --out "$FOLDER/head"
