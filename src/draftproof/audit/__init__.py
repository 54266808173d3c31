"""Is a decoder exact? The enumerated proof, its cases, and the wrong rules it must catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.audit.custom.prove import audit_subject as audit_subject
    from draftproof.audit.proof import Audit as Audit
    from draftproof.audit.proof import audit_rules as audit_rules

__all__ = [
    "Audit",
    "audit_rules",
    "audit_subject",
]

_HOMES = {
    "Audit": "draftproof.audit.proof",
    "audit_rules": "draftproof.audit.proof",
    "audit_subject": "draftproof.audit.custom.prove",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
