"""Numbers, towers and kinds of calls, and the layers that none came from."""

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from attnviz.places import Places


class Attention(nn.Module):
    def __init__(self, places: Places | None = None, layer: int | None = None):
        super().__init__()
        self.places, self.layer_idx = places, layer

    def forward(self) -> nn.Module:
        return self.inner()

    def inner(self) -> nn.Module:
        return (lambda: self.found())()

    def found(self) -> nn.Module:
        return self.places.at_work()


class Layer(nn.Module):
    def __init__(self, **parts: nn.Module):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class Model(PreTrainedModel):
    def __init__(self, layers: nn.ModuleList):
        super().__init__(PretrainedConfig())
        self.layers = layers


class MambaMixer(nn.Module):
    pass


def test_the_innermost_module_at_work_is_found():
    model = Model(nn.ModuleList([Layer(attention=Attention()) for _ in range(2)]))
    places = Places(model)
    attention = model.layers[1].attention
    attention.places = places
    assert attention() is attention


def numbers(places: Places, *modules: nn.Module) -> list[int]:
    return [places.place(module).layer for module in modules]


def test_a_layer_has_the_number_of_its_path():
    model = Model(nn.ModuleList([Layer(attention=Attention()) for _ in range(3)]))
    assert numbers(Places(model), model.layers[2].attention) == [2]


def test_one_module_that_runs_many_times_is_counted():
    shared = Attention()
    model = Model(nn.ModuleList([Layer(attention=shared)]))
    assert numbers(Places(model), shared, shared, shared) == [0, 1, 2]


def test_a_module_that_says_its_number_keeps_it():
    stated = Attention(layer=4)
    model = Model(nn.ModuleList([Layer(attention=stated)]))
    assert numbers(Places(model), stated, stated) == [4, 4]


def test_layers_numbered_anew_in_each_stage_are_counted():
    stages = nn.ModuleList(
        [Layer(blocks=nn.ModuleList([Attention() for _ in range(size)])) for size in (2, 3)]
    )
    model = Model(stages)
    blocks = [block for stage in stages for block in stage.blocks]
    assert numbers(Places(model), *blocks) == [0, 1, 2, 3, 4]


def test_layers_without_a_call_are_named_with_their_reason():
    parts = [Attention(), MambaMixer(), nn.Identity()]
    model = Model(nn.ModuleList([Layer(mixer=part) for part in parts]))
    places = Places(model)
    failed = places.place(model.layers[0].mixer)
    unread = places.unread([], {failed.module: (failed, "it cannot")}, used=())
    assert [(layer.layer, layer.module) for layer in unread] == [
        (0, "layers.0.mixer"),
        (1, "layers.1"),
        (2, "layers.2"),
    ]
    assert unread[0].reason == "It cannot."
    assert "recurrent state" in unread[1].reason
    assert "no softmax attention" in unread[2].reason


def test_a_module_that_runs_twice_in_its_layer_keeps_its_number():
    model = Model(nn.ModuleList([Layer(attention=Attention()) for _ in range(3)]))
    attention = [layer.attention for layer in model.layers]
    runs = (attention[0], attention[0], attention[1], attention[1], attention[2])
    assert numbers(Places(model), *runs) == [0, 0, 1, 1, 2]


def test_two_attentions_of_a_layer_have_its_number():
    layers = [Layer(over_time=Attention(), over_space=Attention()) for _ in range(2)]
    model = Model(nn.ModuleList(layers))
    parts = [part for layer in layers for part in (layer.over_time, layer.over_space)]
    assert numbers(Places(model), *parts) == [0, 0, 1, 1]


def test_a_number_below_zero_says_nothing():
    shared = Attention(layer=-1)
    model = Model(nn.ModuleList([Layer(), Layer(attention=shared)]))
    assert numbers(Places(model), shared) == [1]


def test_a_layer_that_stands_twice_in_its_list_was_read():
    layer = Layer(attention=Attention(layer=0))
    model = Model(nn.ModuleList([layer, layer, Layer(attention=MambaMixer())]))
    places = Places(model)
    failed = places.place(layer.attention)
    unread = places.unread([], {failed.module: (failed, "it cannot")}, used=())
    assert [(found.layer, found.module) for found in unread] == [
        (0, "layers.0.attention"),
        (2, "layers.2"),
    ]


def test_work_of_another_model_is_none_of_this_ones():
    inner, outer = Attention(), Model(nn.ModuleList([Layer(attention=Attention())]))
    places = Places(outer)
    inner.places = places
    assert inner() is None
