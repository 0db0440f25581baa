# requires: diffusers, torch, transformers, onnxscript, accelerate
# Stable Diffusion of small networks with random weights: text encoder, U-Net and decoder as torch exports them.
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, OnnxRuntimeModel, OnnxStableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

torch.manual_seed(0)
DYNAMIC = torch.export.Dim.DYNAMIC


class Wrapped(torch.nn.Module):
    """A network by positional arguments, with tensors alone as results."""

    def __init__(self, network: Any, method: str = "") -> None:
        super().__init__()
        self.network, self.method = network, method

    def forward(self, *inputs: Any) -> Any:
        made = (getattr(self.network, self.method) if self.method else self.network)(*inputs, return_dict=False)
        return made[0].mean if self.method == "encode" else made[0]


def exported(name: str, network: Any, inputs: dict[str, Any], output: str, method: str = "") -> OnnxRuntimeModel:
    """The network as diffusers runs it, of any batch and size of images."""
    Path(name).mkdir(exist_ok=True)
    sizes = [{axis: DYNAMIC for axis in range(x.ndim) if axis in (0, 2, 3) and x.ndim != 3} for x in inputs.values()]
    sizes = [{0: DYNAMIC} if x.ndim == 3 else size for x, size in zip(inputs.values(), sizes, strict=True)]
    torch.onnx.export(
        Wrapped(network.eval(), method),
        tuple(inputs.values()),
        f"{name}/model.onnx",
        input_names=list(inputs),
        output_names=[output],
        dynamic_shapes=(tuple(sizes),),
        dynamo=True,
        verbose=False,
    )
    return OnnxRuntimeModel.from_pretrained(name, provider_options=None)


words = ["<|startoftext|>", "<|endoftext|>", *(f"{letter}</w>" for letter in "abcdefghij"), *"abcdefghij"]
Path("vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
Path("merges.txt").write_text("#version: 0.2\n")
tokenizer = CLIPTokenizer("vocab.json", "merges.txt", model_max_length=16)
text = CLIPTextModel(
    CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=1,
        attn_implementation="eager",
    )
)
unet = UNet2DConditionModel(
    sample_size=16,
    block_out_channels=(32, 64),
    layers_per_block=1,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32,
    attention_head_dim=8,
)
vae = AutoencoderKL(
    block_out_channels=(32, 64),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    latent_channels=4,
)
latent, image = torch.randn(3, 4, 18, 20), torch.randn(3, 3, 36, 40)
pipeline = OnnxStableDiffusionPipeline(
    vae_encoder=exported("vae_encoder", vae, {"sample": image}, "latent_sample", "encode"),
    vae_decoder=exported("vae_decoder", vae, {"latent_sample": latent}, "sample", "decode"),
    text_encoder=exported(
        "text", text, {"input_ids": torch.randint(0, 9, (3, 16), dtype=torch.int32)}, "last_hidden_state"
    ),
    tokenizer=tokenizer,
    unet=exported(
        "unet",
        unet,
        {"sample": latent, "timestep": torch.tensor([3]), "encoder_hidden_states": torch.randn(3, 16, 32)},
        "out_sample",
    ),
    scheduler=DDIMScheduler(),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
)
pipeline.set_progress_bar_config(disable=True)
result = []
for prompt, (height, width) in (("a b c", (64, 64)), (["a", "j i h"], (48, 80))):
    noise = np.random.RandomState(1)
    options = {"num_inference_steps": 3, "generator": noise, "output_type": "np"}
    result.append(pipeline(prompt, height=height, width=width, **options).images)
