#!/usr/bin/env bash
# transformers 5.24.0: from_pretrained(gguf_file=…), the way back from GGUF to a model that can be trained, drops two parts of a Llama without a
# message: Llama 3.1's scaling of positions, which GGUF stores as a tensor (rope_freqs.weight), and the biases of attention_bias and mlp_bias.
# save_pretrained then writes a model without them. llama.cpp computes the original's log-probabilities from the same file.
. "$(dirname "$0")/support.sh"
packages transformers==5.24.0 torch==2.15.0 gguf==0.19.0 accelerate==1.15.0 xllamacpp==2026.10.11549 numpy==2.4.6
cat > "$folder/gguf_llama.py" <<'PYTHON'
import json
import math
import sys

import gguf
import torch
import transformers
import xllamacpp

folder, vocabulary, heads, wide, positions = sys.argv[1], 64, 4, 64, 40
ids = [(7 * place * place + 3 * place) % (vocabulary - 8) + 8 for place in range(48)]
scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": positions, "rope_theta": 10000.0}
plain = {"rope_type": "default", "rope_theta": 10000.0}


def write(model, path):
    """The model as GGUF, as llama.cpp's converter writes it: rows of q and k in pairs, the factors of the frequencies as a tensor."""
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(wide)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(wide // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", *(f"\u2581w{index}" for index in range(5, vocabulary))])
    writer.add_token_scores([0.0] * vocabulary)
    writer.add_token_types([2, 3, 3, 6] + [1] * (vocabulary - 4))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            tensor = tensor.reshape(heads, 2, wide // heads // 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), tensor.contiguous().numpy())
    rope = config.rope_parameters
    if rope["rope_type"] == "llama3":
        base = 10000.0 ** (-torch.arange(0, wide // heads, 2).double() / (wide // heads))
        rotary = model.model.rotary_emb.inv_freq.double()
        writer.add_tensor("rope_freqs.weight", (base / rotary).float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def of_transformers(model):
    """The log-probability of the last id after the ids before it."""
    with torch.no_grad():
        return model(torch.tensor([ids[:-1]])).logits[0, -1].log_softmax(-1)[ids[-1]].item()


def of_llama_cpp(path):
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.n_parallel, parameters.warmup = path, 256, 1, False
    answer = xllamacpp.Server(parameters).handle_completions(
        {"prompt": ids[:-1], "n_predict": 1, "n_probs": vocabulary, "temperature": 0.0, "cache_prompt": False})
    tokens = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return next(token["logprob"] for token in tokens if token["id"] == ids[-1])


print(f"transformers {transformers.__version__}, llama.cpp of xllamacpp 2026.10.11549: log-probability of one token at position {len(ids) - 1}")
seen = {}
for part, rope, biases in (("nothing", plain, False), ("scaled positions", scaling, False), ("biases", plain, True)):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=wide, intermediate_size=96, num_hidden_layers=2, num_attention_heads=heads, initializer_range=0.2,
        max_position_embeddings=256, rope_parameters=rope, attention_bias=biases, mlp_bias=biases, tie_word_embeddings=False)).eval()
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(tensor, std=0.5)
    path = f"{folder}/{part.split()[0]}.gguf"
    write(model, path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=path).eval()
    expected, llama_cpp, back = of_transformers(model), of_llama_cpp(path), of_transformers(loaded)
    seen[part] = math.isclose(expected, llama_cpp, abs_tol=1e-2), math.isclose(expected, back, abs_tol=1e-2)
    print(f"a Llama with {part}: {expected:.4f}; from its GGUF file: llama.cpp {llama_cpp:.4f}, expected of transformers the same, "
          f"seen {back:.4f} ({sum(name.endswith('bias') for name in loaded.state_dict())} biases, "
          f"{loaded.config.rope_parameters['rope_type']} positions)")
sys.exit(seen != {"nothing": (True, True), "scaled positions": (True, False), "biases": (True, False)})
PYTHON
HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 check "$python" -W ignore "$folder/gguf_llama.py" "$folder"
