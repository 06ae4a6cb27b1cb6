#!/usr/bin/env python3
# Holds models of Invar's against Hugging Face's library, which must be installed (transformers 4.40 or later, torch). bench/hugging_face.sh calls it.
#
#   hugging_face.py make FOLDER                     # tiny models of that library's, with random weights: FOLDER/gpt2, llama, ...
#   hugging_face.py compare NAME FOLDER SAMPLE ...  # SAMPLE is what `invar sample FOLDER ... --temperature 0 --json --logits` has printed
#
# A line for each folder: OK or differs, the largest difference of a logit, and the tokens that agree. Exit code 1 where one differs.
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # whatever is not in the folder is missing
import torch
import transformers

# FP32 on both sides, with sums in another order: so many roundings of the largest logit, where a model of two layers needs a few.
TOLERANCE = 256 * 2.0**-24


def make(folder):
    torch.manual_seed(0)
    # Larger than the library's own 0.02, with which all logits are nearly the same.
    sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                 max_position_embeddings=96, initializer_range=0.2, rms_norm_eps=1e-6, bos_token_id=256, eos_token_id=256)
    t = transformers
    gpt2 = dict(vocab_size=257, n_positions=96, n_embd=48, n_layer=2, n_head=4, initializer_range=0.2, bos_token_id=256, eos_token_id=256)
    models = {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**sizes, tie_word_embeddings=False)),
        "llama_tied": lambda: t.LlamaForCausalLM(t.LlamaConfig(**sizes, tie_word_embeddings=True)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**sizes, tie_word_embeddings=True, use_sliding_window=False)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**sizes, tie_word_embeddings=False, sliding_window=None)),
    }
    for name, model in models.items():
        made = model()
        with torch.no_grad():  # that library begins with biases of 0 and norms of 1, which would hide one that is left out
            for parameter in made.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
        made.save_pretrained(folder / name)
        made.to(torch.bfloat16).save_pretrained(folder / f"{name}_bf16", max_shard_size="50KB")


def tokenizer_problem(folder, sample):
    if not (folder / "tokenizer.json").exists():
        return ""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(sample["prompt"], add_special_tokens=False)
    if ids != sample["prompt_ids"]:
        return f"its tokenizer makes {ids} of the prompt, Invar {sample['prompt_ids']}"
    text = tokenizer.decode(sample["ids"], skip_special_tokens=False)
    if "\ufffd" in text:  # half a character, for which each side has marks of its own
        return ""
    return "" if text == sample["text"] else f"its tokenizer makes {text!r} of the tokens, Invar {sample['text']!r}"


def compare(name, folder, sample):
    """("", facts), or what differs and facts."""
    version = [int(part) for part in transformers.__version__.split(".")[:2]]
    key = "dtype" if version >= [4, 56] else "torch_dtype"  # its name since that version
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **{key: torch.float32}).eval()
    with torch.no_grad():
        logits = model(torch.tensor([sample["prompt_ids"]])).logits[0, -1]
        ours = torch.tensor(sample["logits"])
        if logits.shape != ours.shape:
            return f"it gives {logits.numel()} logits, Invar {ours.numel()}", ""
        scale = float(logits.abs().max())
        worst = float((logits - ours).abs().max())
        # Greedy, a token at a time over Invar's own text, so that one near tie does not decide about all that follows.
        agreed = ties = 0
        seen = list(sample["prompt_ids"])
        for token in sample["ids"]:
            if len(seen) >= model.config.max_position_embeddings:
                break
            step = model(torch.tensor([seen])).logits[0, -1]
            agreed += int(step.argmax()) == token
            ties += int(step.argmax()) != token and float(step.max() - step[token]) < TOLERANCE * scale
            seen.append(token)
    steps = len(seen) - len(sample["prompt_ids"])
    facts = f"{model.config.model_type}, largest logit {scale:.3f}, largest difference {worst:.1e}, {agreed} of {steps} greedy tokens"
    facts += f", {ties} nearly tied" if ties else ""
    if worst > TOLERANCE * scale:
        return "the logits are further apart than rounding", facts
    if steps == 0 or agreed + ties != steps:
        return "the likeliest tokens differ", facts
    return tokenizer_problem(folder, sample), facts


def main():
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 3:
        return make(Path(sys.argv[2]))
    if sys.argv[1:2] != ["compare"] or len(sys.argv) < 5 or len(sys.argv) % 3 != 2:
        sys.exit("usage: hugging_face.py make FOLDER, or hugging_face.py compare NAME FOLDER SAMPLE ...")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    differs = 0
    for name, folder, sample in zip(*[iter(sys.argv[2:])] * 3):
        try:
            problem, facts = compare(name, Path(folder), json.loads(Path(sample).read_text()))
        except Exception as error:  # one folder that cannot be read is one line, as the others are
            problem, facts = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", ""
        differs += bool(problem)
        print(f"{'differs' if problem else 'OK':8} {name:28} {facts}{': ' + problem if problem else ''}", flush=True)
    print(f"{differs} differ" if differs else "all agree")
    sys.exit(bool(differs))


if __name__ == "__main__":
    main()
