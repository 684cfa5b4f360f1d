"""Explorers for the notebooks: ipywidgets that leave a static picture where widgets do not run.

display        what all of them share: controls above a panel, and the static picture
responses      one model's responses, and the probability of each next token
advantages     the estimators' advantages and token weights for rewards set by hand
live           training from the notebook, try after try
comparison     the same prompt answered by several models
pass_curves    pass@k against k
tree           the tree of responses to one prompt
"""

from labutils.widgets.advantages import advantage_bench
from labutils.widgets.comparison import side_by_side
from labutils.widgets.live import live_bench
from labutils.widgets.pass_curves import pass_at_k_explorer
from labutils.widgets.responses import response_explorer
from labutils.widgets.tree import response_tree

__all__ = [
    "advantage_bench",
    "live_bench",
    "pass_at_k_explorer",
    "response_explorer",
    "response_tree",
    "side_by_side",
]
