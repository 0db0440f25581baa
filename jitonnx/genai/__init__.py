"""Language models in folders, from a prompt to text: a drop-in for the package onnxruntime_genai.

    import jitonnx.genai as og

    model = og.Model("folder")                       # genai_config.json, model.onnx, tokenizer.json
    tokenizer = og.Tokenizer(model)
    params = og.GeneratorParams(model)
    generator = og.Generator(model, params)
    generator.append_tokens(tokenizer.encode("Once upon a time"))
    stream = tokenizer.create_stream()
    while not generator.is_done():
        generator.generate_next_token()
        print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)

and above it a shorter way:

    model = jitonnx.genai.load("folder")
    for piece in model.generate([{"role": "user", "content": "Hello!"}], temperature=0.8, stream=True):
        print(piece, end="", flush=True)

Tokenizers need the package `tokenizers`, chat templates `jinja2`: both come with the extra `jitonnx[genai]`.
"""

from jitonnx.genai.audio import Audios
from jitonnx.genai.config import Config
from jitonnx.genai.embedder import Embedder
from jitonnx.genai.engine import Engine, Request
from jitonnx.genai.generator import Generator, GeneratorParams
from jitonnx.genai.images import Images
from jitonnx.genai.language_model import LanguageModel, Usage, load
from jitonnx.genai.model import Adapters, Model
from jitonnx.genai.multimodal import MultiModalProcessor
from jitonnx.genai.reranker import Reranker
from jitonnx.genai.tensors import NamedTensors, Tensor
from jitonnx.genai.tokenizer import Tokenizer, TokenizerStream
from jitonnx.genai.transcription import Segment, Transcript
from jitonnx.genai.turns import (
    EngineCapabilities,
    EngineErrorCode,
    EngineEvent,
    EngineEventBuffer,
    EngineEventFlags,
    FinishReason,
    RequestOptions,
    TurnOptions,
    TurnUsage,
)
from jitonnx.genai.unsupported import (
    MtpGenerator,
    StreamingProcessor,
    disable_telemetry_events,
    enable_telemetry_events,
    get_current_gpu_device_id,
    is_cuda_available,
    is_dml_available,
    is_openvino_available,
    is_qnn_available,
    is_webgpu_available,
    register_execution_provider_library,
    set_current_gpu_device_id,
    set_log_callback,
    set_log_options,
    unregister_execution_provider_library,
)

__version__ = "0.18.0"
"""The version of onnxruntime_genai whose interface is held."""

__all__ = [
    "Adapters",
    "Audios",
    "Config",
    "Embedder",
    "Engine",
    "EngineCapabilities",
    "EngineErrorCode",
    "EngineEvent",
    "EngineEventBuffer",
    "EngineEventFlags",
    "FinishReason",
    "Generator",
    "GeneratorParams",
    "Images",
    "LanguageModel",
    "Model",
    "MtpGenerator",
    "MultiModalProcessor",
    "NamedTensors",
    "Request",
    "RequestOptions",
    "Reranker",
    "Segment",
    "StreamingProcessor",
    "Tensor",
    "Tokenizer",
    "TokenizerStream",
    "Transcript",
    "TurnOptions",
    "TurnUsage",
    "Usage",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_current_gpu_device_id",
    "is_cuda_available",
    "is_dml_available",
    "is_openvino_available",
    "is_qnn_available",
    "is_webgpu_available",
    "load",
    "register_execution_provider_library",
    "set_current_gpu_device_id",
    "set_log_callback",
    "set_log_options",
    "unregister_execution_provider_library",
]
