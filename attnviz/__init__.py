"""attnviz: attention, from the equation to real pretrained models."""
