# requires: sentence-transformers, optimum-onnx[onnxruntime], torch
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "model", "runs", "here"]
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
torch.manual_seed(0)
config = BertConfig(len(words), 32, 2, 4, 64, max_position_embeddings=32)
BertModel(config).eval().save_pretrained("bert")
PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained("bert")
Transformer("bert").save("whole")
plain = Transformer("bert")
SentenceTransformer(modules=[plain, Pooling(32)]).save("whole")
model = SentenceTransformer("whole", backend="onnx", model_kwargs={"export": True})
result = model.encode(["a small model", "a model runs here", "here"])
