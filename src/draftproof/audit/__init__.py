"""Is a decoder exact? The enumerated proof, its cases, and the wrong rules it must catch; engines by their rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.audit.custom.prove import audit_subject as audit_subject
    from draftproof.audit.engines.ours import OurEngine as OurEngine
    from draftproof.audit.engines.transformers_assisted import TransformersEngine as TransformersEngine
    from draftproof.audit.greedy import audit_greedy as audit_greedy
    from draftproof.audit.proof import Audit as Audit
    from draftproof.audit.proof import audit_rules as audit_rules
    from draftproof.audit.white_box.run import audit_white_box as audit_white_box

__all__ = [
    "Audit",
    "OurEngine",
    "TransformersEngine",
    "audit_greedy",
    "audit_rules",
    "audit_subject",
    "audit_white_box",
]

_HOMES = {
    "Audit": "draftproof.audit.proof",
    "OurEngine": "draftproof.audit.engines.ours",
    "TransformersEngine": "draftproof.audit.engines.transformers_assisted",
    "audit_greedy": "draftproof.audit.greedy",
    "audit_rules": "draftproof.audit.proof",
    "audit_subject": "draftproof.audit.custom.prove",
    "audit_white_box": "draftproof.audit.white_box.run",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
