"""Tiny models of many families, with random weights spread wide enough for bugs to show.

Freshly initialised models attend almost uniformly and have zero biases: every mistake passes
on them. Sizes are pairwise different and mostly prime, so that a swapped axis cannot fit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import transformers as hf
from torch import Tensor

VOCABULARY = 53
EXPERTS = {"hidden_size": 44, "intermediate_size": 28}  # they want whole groups of four
PROJECTS_BEFORE_DIVIDING = ("Attention.q.weight",)  # T5 divides here, once, never the scores


def spread(model: hf.PreTrainedModel, seed: int = 0) -> hf.PreTrainedModel:
    """Draw every weight from N(0, 1.3²/fan_in), biases from N(0, 0.5²), norms near their start."""
    dice = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=dice)
        if not weight.requires_grad:  # sinusoids, which a rotation must be made of
            continue
        if "norm" in name.lower() or name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            noise = weight.data + 0.1 * noise  # 1, or 0 in families that add the 1 later
        elif weight.dim() > 1 and "relative_attention_bias" not in name:
            noise = noise * 1.3 / weight[0].numel() ** 0.5
        else:
            noise = 0.5 * noise
        if name.endswith(PROJECTS_BEFORE_DIVIDING):
            noise = noise / model.config.d_kv**0.5
        weight.data.copy_(noise)
    return model.eval()


def build(family: str, attention: str = "sdpa") -> hf.PreTrainedModel:
    """The tiny model of a family, always with the same weights."""
    model_class, config = (FAMILIES | OWN_ATTENTION | REFUSED)[family]
    if family not in FAMILIES and not family.startswith("falcon"):
        attention = "eager"  # the one implementation that they have
    model = model_class._from_config(config(), attn_implementation=attention)
    if family == "tied_encoder_decoder":
        _tie_halves(model)
    return spread(model)


def _tie_halves(model: hf.EncoderDecoderModel) -> None:
    """Let the decoder's layers hold the very parameters of the encoder's."""
    decoder = dict(model.decoder.bert.named_modules())
    for path, module in model.encoder.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if path in decoder:
                setattr(decoder[path], name, parameter)


def _sized(config_class, sizes, extra):
    return lambda: config_class(**(sizes | extra))


def _llama_like(config_class, **extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 42,
        "intermediate_size": 29,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 14,
        "max_position_embeddings": 97,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _sized(config_class, sizes, extra)


def _bert_like(config_class, **extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 55,
        "intermediate_size": 31,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "max_position_embeddings": 97,
        "pad_token_id": 0,
    }
    return _sized(config_class, sizes, extra)


def _gpt2(**extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "n_positions": 97,
        "n_embd": 55,
        "n_layer": 3,
        "n_head": 5,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _sized(hf.GPT2Config, sizes, extra)


def _falcon(**extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 60,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "ffn_hidden_size": 31,
        "max_position_embeddings": 97,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _sized(hf.FalconConfig, sizes, extra)


def _t5(**extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 37,
        "d_kv": 11,
        "d_ff": 29,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 5,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "eos_token_id": 2,
    }
    return _sized(hf.T5Config, sizes, extra)


def _bart_like(config_class, **extra):
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 55,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 5,
        "encoder_ffn_dim": 31,
        "decoder_ffn_dim": 31,
        "max_position_embeddings": 97,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }
    return _sized(config_class, sizes, extra)


def _vit_like(config_class, **extra):
    sizes = {
        "hidden_size": 55,
        "intermediate_size": 31,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "image_size": 28,
        "patch_size": 7,
    }
    return _sized(config_class, sizes, extra)


def _clip():
    text = _bert_like(hf.CLIPTextConfig, bos_token_id=1, eos_token_id=2, projection_dim=19)
    vision = _vit_like(
        hf.CLIPVisionConfig, hidden_size=42, num_attention_heads=3, projection_dim=19
    )
    return hf.CLIPConfig(
        text_config=text().to_dict(), vision_config=vision().to_dict(), projection_dim=19
    )


def _encoder_decoder():
    half = _bert_like(hf.BertConfig)
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(half(), half())
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return config


FAMILIES = {
    "gpt2": (hf.GPT2LMHeadModel, _gpt2()),
    "gpt2_by_layer": (hf.GPT2LMHeadModel, _gpt2(scale_attn_by_inverse_layer_idx=True)),
    "gpt2_reordered": (hf.GPT2LMHeadModel, _gpt2(reorder_and_upcast_attn=True)),
    "gpt_neox": (
        hf.GPTNeoXForCausalLM,
        lambda: hf.GPTNeoXConfig(
            vocab_size=VOCABULARY,
            hidden_size=70,
            intermediate_size=31,
            num_hidden_layers=3,
            num_attention_heads=5,
            max_position_embeddings=97,
            bos_token_id=1,
            eos_token_id=2,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.3,
            },
        ),
    ),
    "gptj": (
        hf.GPTJForCausalLM,
        lambda: hf.GPTJConfig(
            vocab_size=VOCABULARY,
            n_positions=97,
            n_embd=70,
            n_layer=3,
            n_head=5,
            rotary_dim=6,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "opt": (
        hf.OPTForCausalLM,
        _bert_like(
            hf.OPTConfig, ffn_dim=31, word_embed_proj_dim=55, bos_token_id=1, eos_token_id=2
        ),
    ),
    "phi": (hf.PhiForCausalLM, _llama_like(hf.PhiConfig, hidden_size=72, head_dim=12)),
    "phi3": (hf.Phi3ForCausalLM, _llama_like(hf.Phi3Config, hidden_size=84)),
    "stablelm": (
        hf.StableLmForCausalLM,
        _llama_like(hf.StableLmConfig, hidden_size=96, head_dim=16),
    ),
    "llama": (hf.LlamaForCausalLM, _llama_like(hf.LlamaConfig, attention_bias=True)),
    "mistral": (hf.MistralForCausalLM, _llama_like(hf.MistralConfig, sliding_window=5)),
    "mixtral": (
        hf.MixtralForCausalLM,
        _llama_like(hf.MixtralConfig, **EXPERTS, num_local_experts=3, sliding_window=None),
    ),
    "qwen2": (hf.Qwen2ForCausalLM, _llama_like(hf.Qwen2Config)),
    "qwen3": (hf.Qwen3ForCausalLM, _llama_like(hf.Qwen3Config)),
    "qwen3_moe": (
        hf.Qwen3MoeForCausalLM,
        _llama_like(
            hf.Qwen3MoeConfig,
            **EXPERTS,
            num_experts=3,
            num_experts_per_tok=2,
            moe_intermediate_size=20,
        ),
    ),
    "gemma2": (
        hf.Gemma2ForCausalLM,
        _llama_like(
            hf.Gemma2Config,
            attn_logit_softcapping=5.0,
            query_pre_attn_scalar=16,
            sliding_window=5,
        ),
    ),
    "gemma3": (
        hf.Gemma3ForCausalLM,
        _llama_like(
            hf.Gemma3TextConfig,
            query_pre_attn_scalar=19,
            sliding_window=5,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    "cohere": (hf.CohereForCausalLM, _llama_like(hf.CohereConfig, hidden_size=84)),
    "cohere2": (
        hf.Cohere2ForCausalLM,
        _llama_like(
            hf.Cohere2Config,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            sliding_window=5,
        ),
    ),
    "olmo2": (hf.Olmo2ForCausalLM, _llama_like(hf.Olmo2Config)),
    "smollm3": (
        hf.SmolLM3ForCausalLM,
        _llama_like(hf.SmolLM3Config, no_rope_layers=[1, 0, 1]),
    ),
    "granite": (hf.GraniteForCausalLM, _llama_like(hf.GraniteConfig, attention_multiplier=0.23)),
    "gpt_oss": (
        hf.GptOssForCausalLM,
        _llama_like(
            hf.GptOssConfig,
            **EXPERTS,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=5,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
    ),
    "deepseek_v3": (
        hf.DeepseekV3ForCausalLM,
        lambda: hf.DeepseekV3Config(
            vocab_size=VOCABULARY,
            hidden_size=44,
            intermediate_size=28,
            moe_intermediate_size=20,
            num_hidden_layers=3,
            num_attention_heads=5,
            num_key_value_heads=5,
            q_lora_rank=23,
            kv_lora_rank=19,
            qk_rope_head_dim=6,
            qk_nope_head_dim=7,
            v_head_dim=11,
            n_routed_experts=4,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            max_position_embeddings=97,
        ),
    ),
    "llama4": (
        hf.Llama4ForCausalLM,
        _llama_like(
            hf.Llama4TextConfig,
            intermediate_size_mlp=31,
            num_local_experts=3,
            no_rope_layers=[1, 0, 1],
            attention_chunk_size=5,
            floor_scale=3,
            attn_scale=0.7,
        ),
    ),
    "qwen3_next": (
        hf.Qwen3NextForCausalLM,
        _llama_like(
            hf.Qwen3NextConfig,
            **EXPERTS,
            num_hidden_layers=5,
            layer_types=[
                "linear_attention",
                "full_attention",
                "linear_attention",
                "linear_attention",
                "full_attention",
            ],
            linear_key_head_dim=7,
            linear_value_head_dim=11,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=3,
            num_experts_per_tok=2,
            moe_intermediate_size=20,
            shared_expert_intermediate_size=24,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        ),
    ),
    "jamba": (
        hf.JambaForCausalLM,
        _llama_like(
            hf.JambaConfig,
            **EXPERTS,
            num_hidden_layers=5,
            attn_layer_period=3,
            attn_layer_offset=1,
            num_experts=3,
            mamba_d_state=7,
            mamba_dt_rank=5,
        ),
    ),
    "diffllama": (
        hf.DiffLlamaForCausalLM,
        _llama_like(hf.DiffLlamaConfig, num_attention_heads=12, num_key_value_heads=4),
    ),
    "bert": (hf.BertModel, _bert_like(hf.BertConfig)),
    "roberta": (hf.RobertaModel, _bert_like(hf.RobertaConfig)),
    "distilbert": (
        hf.DistilBertModel,
        lambda: hf.DistilBertConfig(
            vocab_size=VOCABULARY, dim=55, hidden_dim=31, n_layers=3, n_heads=5
        ),
    ),
    "albert": (hf.AlbertModel, _bert_like(hf.AlbertConfig, embedding_size=19)),
    "electra": (hf.ElectraModel, _bert_like(hf.ElectraConfig, embedding_size=19)),
    "modernbert": (
        hf.ModernBertModel,
        _bert_like(
            hf.ModernBertConfig,
            hidden_size=70,
            global_attn_every_n_layers=2,
            local_attention=6,
            cls_token_id=1,
            bos_token_id=1,
            sep_token_id=2,
            eos_token_id=2,
        ),
    ),
    "bert_decoder": (
        hf.BertLMHeadModel,
        _bert_like(hf.BertConfig, is_decoder=True, add_cross_attention=True),
    ),
    "tied_encoder_decoder": (hf.EncoderDecoderModel, _encoder_decoder),
    "t5": (hf.T5ForConditionalGeneration, _t5()),
    "flan_t5": (
        hf.T5ForConditionalGeneration,
        _t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    ),
    "bart": (hf.BartForConditionalGeneration, _bart_like(hf.BartConfig)),
    "marian": (hf.MarianMTModel, _bart_like(hf.MarianConfig, scale_embedding=True)),
    "pegasus": (hf.PegasusForConditionalGeneration, _bart_like(hf.PegasusConfig)),
    "whisper": (
        hf.WhisperForConditionalGeneration,
        _bart_like(
            hf.WhisperConfig,
            d_model=70,  # its sinusoids come in pairs
            num_mel_bins=17,
            max_source_positions=19,
            max_target_positions=97,
            begin_suppress_tokens=None,
        ),
    ),
    "vit": (hf.ViTModel, _vit_like(hf.ViTConfig)),
    "dinov2": (hf.Dinov2Model, _vit_like(hf.Dinov2Config)),
    "dinov2_registers": (
        hf.Dinov2WithRegistersModel,
        _vit_like(hf.Dinov2WithRegistersConfig, num_register_tokens=3),
    ),
    "swin": (
        hf.SwinModel,
        lambda: hf.SwinConfig(
            image_size=24,
            patch_size=2,
            embed_dim=21,
            depths=[2, 1],
            num_heads=[3, 6],
            window_size=3,
        ),
    ),
    "clip": (hf.CLIPModel, _clip),
    "wav2vec2": (
        hf.Wav2Vec2Model,
        _bert_like(
            hf.Wav2Vec2Config,
            conv_dim=(13, 13),
            conv_stride=(5, 3),
            conv_kernel=(7, 3),
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=5,
            feat_extract_norm="layer",
        ),
    ),
}

OWN_ATTENTION = {
    "bloom": (
        hf.BloomForCausalLM,
        lambda: hf.BloomConfig(
            vocab_size=VOCABULARY,
            hidden_size=55,
            n_layer=3,
            n_head=5,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "mpt": (
        hf.MptForCausalLM,
        lambda: hf.MptConfig(
            vocab_size=VOCABULARY, d_model=66, n_layers=3, n_heads=6, max_seq_len=97
        ),
    ),
    "falcon": (hf.FalconForCausalLM, _falcon()),
    "falcon_grouped": (
        hf.FalconForCausalLM,
        _falcon(new_decoder_architecture=True, num_kv_heads=3, num_attention_heads=6),
    ),
    "falcon_alibi": (hf.FalconForCausalLM, _falcon(alibi=True, multi_query=False, bias=True)),
    "gpt_neo": (
        hf.GPTNeoForCausalLM,
        lambda: hf.GPTNeoConfig(
            vocab_size=VOCABULARY,
            hidden_size=55,
            num_layers=4,
            num_heads=5,
            intermediate_size=31,
            attention_types=[[["global", "local"], 2]],
            window_size=5,
            max_position_embeddings=97,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "deberta": (
        hf.DebertaModel,
        _bert_like(
            hf.DebertaConfig,
            relative_attention=True,
            pos_att_type="c2p|p2c",
            max_relative_positions=7,
            position_biased_input=False,
        ),
    ),
    "deberta_content": (hf.DebertaModel, _bert_like(hf.DebertaConfig)),
    "deberta_v2": (
        hf.DebertaV2Model,
        _bert_like(
            hf.DebertaV2Config,
            relative_attention=True,
            pos_att_type="c2p|p2c",
            max_relative_positions=7,
            position_biased_input=False,
        ),
    ),
    "deberta_v2_c2p": (
        hf.DebertaV2Model,
        _bert_like(hf.DebertaV2Config, relative_attention=True, pos_att_type="c2p"),
    ),
    "deberta_v3": (
        hf.DebertaV2Model,
        _bert_like(
            hf.DebertaV2Config,
            relative_attention=True,
            pos_att_type="p2c|c2p",
            share_att_key=True,
            position_buckets=4,
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
        ),
    ),
    "mpnet": (hf.MPNetModel, _bert_like(hf.MPNetConfig)),
    "roformer": (
        hf.RoFormerModel,
        _bert_like(hf.RoFormerConfig, hidden_size=70, embedding_size=19),
    ),
    "roformer_value": (
        hf.RoFormerModel,
        _bert_like(hf.RoFormerConfig, hidden_size=70, embedding_size=19, rotary_value=True),
    ),
    "xlnet": (
        hf.XLNetModel,
        lambda: hf.XLNetConfig(
            vocab_size=VOCABULARY, d_model=70, n_layer=3, n_head=5, d_inner=31, pad_token_id=0
        ),
    ),
    "funnel": (
        hf.FunnelModel,
        lambda: hf.FunnelConfig(
            vocab_size=VOCABULARY,
            block_sizes=[1, 2],
            num_decoder_layers=1,
            d_model=42,
            n_head=5,
            d_head=11,
            d_inner=31,
        ),
    ),
    "funnel_factorized": (
        hf.FunnelModel,
        lambda: hf.FunnelConfig(
            vocab_size=VOCABULARY,
            block_sizes=[1, 2],
            num_decoder_layers=1,
            d_model=42,
            n_head=5,
            d_head=11,
            d_inner=31,
            attention_type="factorized",
        ),
    ),
    "convbert": (
        hf.ConvBertModel,
        _bert_like(
            hf.ConvBertConfig,
            hidden_size=66,
            num_attention_heads=6,
            head_ratio=2,
            conv_kernel_size=5,
            embedding_size=19,
        ),
    ),
    "big_bird": (
        hf.BigBirdModel,
        _bert_like(
            hf.BigBirdConfig, attention_type="original_full", bos_token_id=1, sep_token_id=2
        ),
    ),
}

REFUSED = {
    "longformer": (hf.LongformerModel, _bert_like(hf.LongformerConfig, attention_window=4)),
    "led": (
        hf.LEDForConditionalGeneration,
        _bart_like(
            hf.LEDConfig,
            attention_window=4,
            max_encoder_position_embeddings=97,
            max_decoder_position_embeddings=97,
        ),
    ),
    "big_bird_sparse": (
        hf.BigBirdModel,
        _bert_like(
            hf.BigBirdConfig,
            attention_type="block_sparse",
            block_size=4,
            num_random_blocks=1,
            sep_token_id=2,
        ),
    ),
    "reformer_lsh": (
        hf.ReformerModel,
        lambda: hf.ReformerConfig(
            vocab_size=VOCABULARY,
            attn_layers=["lsh", "lsh"],
            hidden_size=42,
            num_attention_heads=3,
            attention_head_size=11,
            feed_forward_size=31,
            axial_pos_embds=False,
            lsh_attn_chunk_length=4,
            num_buckets=4,
            max_position_embeddings=97,
            is_decoder=True,
        ),
    ),
    "nystromformer": (
        hf.NystromformerModel,
        _bert_like(
            hf.NystromformerConfig, segment_means_seq_len=12, num_landmarks=4, conv_kernel_size=3
        ),
    ),
    "mamba": (
        hf.MambaForCausalLM,
        lambda: hf.MambaConfig(
            vocab_size=VOCABULARY,
            hidden_size=42,
            num_hidden_layers=3,
            state_size=7,
            use_mambapy=False,
            pad_token_id=0,
        ),
    ),
    "rwkv": (
        hf.RwkvForCausalLM,
        lambda: hf.RwkvConfig(
            vocab_size=VOCABULARY,
            hidden_size=42,
            num_hidden_layers=3,
            attention_hidden_size=42,
            intermediate_size=31,
        ),
    ),
    "fnet": (
        hf.FNetModel,
        lambda: hf.FNetConfig(
            vocab_size=VOCABULARY,
            hidden_size=42,
            num_hidden_layers=3,
            intermediate_size=31,
            max_position_embeddings=97,
            pad_token_id=0,
        ),
    ),
}
DECODERS = ("gpt2", "llama", "mistral", "qwen3", "gpt_neox")
ENCODERS = ("bert", "distilbert")
EAGER_ONLY = ("gemma2", "gpt_oss")
TWO_TEXTS = ("t5", "flan_t5", "bart", "marian", "pegasus", "tied_encoder_decoder", "led")
ENCODED = 11  # positions of the sequence that a decoder alone attends to


def inputs_for(family: str, length: int = 13, batch: int = 1, seed: int = 1) -> dict[str, Tensor]:
    """Unpadded inputs of a family; encoder–decoders get 7 decoder tokens."""
    dice = torch.Generator().manual_seed(seed)

    def ids(n: int) -> Tensor:
        return torch.randint(3, VOCABULARY, (batch, n), generator=dice)

    def noise(*sizes: int) -> Tensor:
        return torch.randn(batch, *sizes, generator=dice)

    if family in ("vit", "dinov2", "dinov2_registers"):
        return {"pixel_values": noise(3, 28, 28)}
    if family == "swin":
        return {"pixel_values": noise(3, 24, 24)}
    if family == "wav2vec2":
        return {"input_values": noise(15 * length + 17)}
    if family == "whisper":
        return {"input_features": noise(17, 38), "decoder_input_ids": ids(7)}
    length = {"nystromformer": 12, "reformer_lsh": 12, "big_bird_sparse": 64}.get(family, length)
    inputs = {"input_ids": ids(length), "attention_mask": torch.ones(batch, length).long()}
    if family == "clip":
        inputs["pixel_values"] = noise(3, 28, 28)
    if family == "bert_decoder":
        inputs["encoder_hidden_states"] = noise(ENCODED, 55)
    if family in TWO_TEXTS:
        inputs["decoder_input_ids"] = ids(7)
    if family in ("rwkv", "fnet"):
        del inputs["attention_mask"]
    return inputs


def padded(inputs: Mapping[str, Tensor], pads: int, side: str) -> dict[str, Tensor]:
    """The same inputs with padding tokens at one side, masked, positions kept."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    filler = torch.zeros(ids.shape[0], pads, dtype=torch.long)
    order = (lambda a, b: [b, a]) if side == "left" else (lambda a, b: [a, b])
    return {
        "input_ids": torch.cat(order(ids, filler), dim=1),
        "attention_mask": torch.cat(order(mask, filler), dim=1),
    }
