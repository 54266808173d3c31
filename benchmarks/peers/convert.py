"""A model's folder as OpenVINO GenAI reads it, in 16 bits or with int8 weights.

    PYTHON benchmarks/peers/convert.py FOLDER OUT fp16|int8

PYTHON is one with optimum-intel and openvino-tokenizers, in an environment of its own: it wants
another transformers than this package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    folder, out, weights = sys.argv[1:]
    if (Path(out) / "openvino_model.xml").exists():
        print(f"{out} is there already")
        return 0
    command = ["optimum-cli", "export", "openvino", "--model", folder, "--weight-format", weights]
    beside = str(Path(sys.executable).parent / command[0])
    task = ["--task", "text-generation-with-past", "--library", "transformers"]
    return subprocess.run([beside, *command[1:], *task, out], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
