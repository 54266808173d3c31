"""Draw a text with each stretch in the colour of its origin, as `draftproof generate --show` does.

    python tools/show_picture.py --target MODEL [--method suffix] --prompt FILE --out FILE.svg

docs/pictures/show.svg was made by this from Qwen2.5-Coder 1.5B and tools/show_picture_prompt.txt.
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.cli.show import MEANING, STYLES

WIDTH = 78


def coloured(decoder: SpeculativeDecoder, prompt: str, max_tokens: int) -> Text:
    """The greedy answer to one question, every piece in the style of its origin; a legend above."""
    legend = ((MEANING[origin], STYLES[origin]) for origin in ("draft", "replacement", "bonus"))
    text = Text("   ").join(Text(*each) for each in legend).append("\n\n")
    asked = [{"role": "user", "content": prompt}]
    for piece in decoder.stream(asked, SamplingParams(temperature=0, max_tokens=max_tokens)):
        text.append(piece.text, STYLES[piece.origin])
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--method", default="suffix")
    parser.add_argument("--prompt", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--title", default="draftproof generate --show")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    decoder = SpeculativeDecoder.from_pretrained(
        args.target, speculative_config={"method": args.method}
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(coloured(decoder, args.prompt.read_text(encoding="utf-8"), args.max_tokens))
    fetched = r"@font-face \{.*?\}|<!--.*?-->"  # fonts from elsewhere, and who made the drawing
    svg = re.sub(fetched, "", console.export_svg(title=args.title), flags=re.DOTALL)
    args.out.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
