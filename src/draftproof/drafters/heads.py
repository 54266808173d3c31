"""Methods that draft with heads on the target's own hidden states: stated apart from their
drafters, whose files load torch."""

from __future__ import annotations

from typing import Any

from draftproof.drafters.options import DRAFT_SAMPLE_METHOD, Option, count_from
from draftproof.drafters.protocol import Drafter
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.errors import UsageError


def _medusa(config: Config, parts: Parts) -> Drafter:
    from draftproof.drafters.medusa import Medusa

    return Medusa(_head("medusa", config, parts), tree=config.shape)


def _eagle(config: Config, parts: Parts) -> Drafter:
    """One drafter for both generations of heads: they differ in the network alone."""
    from draftproof.drafters.eagle import Eagle

    return Eagle(
        _head(config.method, config, parts),
        config.option("draft_sample_method"),
        num_nodes=config.option("dynamic_tree_nodes"),
        top_k=config.option("dynamic_tree_top_k"),
        name=config.method,
    )


def _head(method: str, config: Config, parts: Parts) -> Any:
    """The head in the folder the config names, else the one that comes with the package for this
    target."""
    from draftproof.heads.folder import load_head
    from draftproof.heads.shipped import shipped_head
    from draftproof.heads.target import target_view

    target = target_view(parts.target)
    folder = config.model or shipped_head(target, method)
    if folder is None:
        raise UsageError(
            f'no head for method "{method}" comes with the package for {target.name}: '
            'name the folder of one with "model" (draftproof train writes them)'
        )
    return load_head(folder, target, method)


DYNAMIC_TREE = (
    Option(
        "dynamic_tree_nodes",
        0,
        count_from(0),
        "nodes of EAGLE-2's tree, the likeliest; 0 drafts a chain",
        vllm=False,
    ),
    Option(
        "dynamic_tree_top_k",
        10,
        count_from(1),
        "continuations of a node that EAGLE-2's tree looks at",
        vllm=False,
    ),
)

METHODS = (
    Method(
        "medusa",
        "heads on the last hidden state, one a position",
        4,
        _medusa,
        model="folder",
        trees=True,
        vllm=True,
    ),
    Method(
        "eagle",
        "a head that predicts the target's next feature",
        4,
        _eagle,
        model="folder",
        options=(DRAFT_SAMPLE_METHOD, *DYNAMIC_TREE),
        vllm=True,
    ),
    Method(
        "eagle3",
        "a head over three fused layers of the target",
        4,
        _eagle,
        model="folder",
        model_optional=True,
        options=(DRAFT_SAMPLE_METHOD, *DYNAMIC_TREE),
        vllm=True,
    ),
)
