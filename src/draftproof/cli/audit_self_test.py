"""`draftproof audit --self-test`: the audit of texts, tried on engines that are known to be exact
or faulty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def run(flags: Mapping[str, Any]) -> int:
    """Try all, show the error rates; 1 when one is not as stated."""
    from draftproof.audit.black_box import check_distributions

    check_distributions()
    from draftproof.audit.black_box.self_test import result_of, self_test
    from draftproof.cli.progress import telling
    from draftproof.report.tables import json_line, print_result

    with telling() as tell:
        tried = self_test(tell=tell)
    result = result_of(tried)
    print_result(result)
    if flags["as_json"]:
        print(json_line(result.document()))
    return 0 if all(one.as_it_should for one in tried) else 1
