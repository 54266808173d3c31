"""OpenVINO and NNCF send statistics of use, beginning with their import, unless told not to; here
nothing is sent."""

from __future__ import annotations


def send_nothing() -> None:
    """Decline, for this process, before either asks. Who has agreed elsewhere keeps what was agreed
    there."""
    try:
        from openvino_telemetry.utils.opt_in_checker import ConsentCheckResult, OptInChecker
    except ImportError:  # not installed: then there is nothing to decline
        return
    OptInChecker.check = lambda *_, **__: ConsentCheckResult.DECLINED
