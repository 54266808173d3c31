"""Is a decoder exact? The enumerated proof, its cases, and the wrong rules it must catch; engines
by their rounds or their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.audit.black_box.copies import LocalCopy as LocalCopy
    from draftproof.audit.black_box.run import Plan as Plan
    from draftproof.audit.black_box.run import audit_black_box as audit_black_box
    from draftproof.audit.custom.prove import audit_subject as audit_subject
    from draftproof.audit.engines.callables import CallableEngine as CallableEngine
    from draftproof.audit.engines.endpoint import EndpointEngine as EndpointEngine
    from draftproof.audit.engines.ours import OurEngine as OurEngine
    from draftproof.audit.engines.transformers_assisted import (
        TransformersEngine as TransformersEngine,
    )
    from draftproof.audit.greedy import audit_greedy as audit_greedy
    from draftproof.audit.proof import Audit as Audit
    from draftproof.audit.proof import audit_rules as audit_rules
    from draftproof.audit.white_box.run import audit_white_box as audit_white_box

__all__ = [
    "Audit",
    "CallableEngine",
    "EndpointEngine",
    "LocalCopy",
    "OurEngine",
    "Plan",
    "TransformersEngine",
    "audit_black_box",
    "audit_greedy",
    "audit_rules",
    "audit_subject",
    "audit_white_box",
]

_HOMES = {
    "Audit": "draftproof.audit.proof",
    "CallableEngine": "draftproof.audit.engines.callables",
    "EndpointEngine": "draftproof.audit.engines.endpoint",
    "LocalCopy": "draftproof.audit.black_box.copies",
    "OurEngine": "draftproof.audit.engines.ours",
    "Plan": "draftproof.audit.black_box.run",
    "TransformersEngine": "draftproof.audit.engines.transformers_assisted",
    "audit_black_box": "draftproof.audit.black_box.run",
    "audit_greedy": "draftproof.audit.greedy",
    "audit_rules": "draftproof.audit.proof",
    "audit_subject": "draftproof.audit.custom.prove",
    "audit_white_box": "draftproof.audit.white_box.run",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
