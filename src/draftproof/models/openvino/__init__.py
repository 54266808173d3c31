"""Passes by OpenVINO: a transformers module converted once, its keys and values in pages that this
package hands out."""

from draftproof.models.openvino.telemetry import send_nothing

send_nothing()  # first of all: OpenVINO tells its makers of the very import of it
