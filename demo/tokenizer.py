"""A small Qwen tokenizer: real Qwen rules and added tokens over a vocabulary of our own."""

from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX, Qwen2Tokenizer

from demo.questions import every_text

VOCABULARY = 2048
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
PLAIN = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def build_tokenizer() -> Qwen2Tokenizer:
    """Trains the merges and adds Qwen's tokens in Qwen's order behind them."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(_texts(), trainer)
    with TemporaryDirectory() as folder:
        bpe.model.save(folder)
        return _with_qwen_tokens(folder)


def _texts() -> Iterator[str]:
    """Our own wordings, often enough to become whole tokens, and English from Python's help."""
    for text in every_text():
        for shape in ("{}", " {}", '"{}"', ' "{}"', "{}\n"):
            yield from [shape.format(text)] * 400
    yield from ["user\n", "assistant\n", "system\n"] * 2000
    yield from ['{"', '": "', '", "', '"}', '": '] * 400
    yield from topics.values()


def _with_qwen_tokens(folder: str) -> Qwen2Tokenizer:
    tokenizer = Qwen2Tokenizer.from_pretrained(folder, padding_side="left")
    added = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    added += [AddedToken(token, special=False, normalized=False) for token in PLAIN]
    tokenizer.add_tokens(added)
    tokenizer.eos_token = SPECIAL[2]
    tokenizer.chat_template = CHAT_TEMPLATE.read_text()
    tokenizer.model_max_length = 4096
    return tokenizer
