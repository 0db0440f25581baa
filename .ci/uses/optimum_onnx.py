# requires: optimum-onnx[onnxruntime], torch
import torch
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction, ORTModelForSequenceClassification
from transformers import BertConfig, BertForSequenceClassification, BertModel, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
bert = BertConfig(64, 32, 2, 4, 64, max_position_embeddings=32, num_labels=3)
llama = LlamaConfig(64, 32, 64, 2, 4, 2, max_position_embeddings=64, eos_token_id=63, pad_token_id=0)
BertForSequenceClassification(bert).save_pretrained("classifier")
BertModel(bert).save_pretrained("encoder")
LlamaForCausalLM(llama).save_pretrained("decoder")
ids = torch.arange(1, 13).reshape(2, 6)
given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
types = {"token_type_ids": torch.zeros_like(ids)}
result = []
for binding in (False, True):
    how = {"export": True, "use_io_binding": binding}
    classifier = ORTModelForSequenceClassification.from_pretrained("classifier", **how)
    encoder = ORTModelForFeatureExtraction.from_pretrained("encoder", **how)
    decoder = ORTModelForCausalLM.from_pretrained("decoder", **how)
    result += [classifier(**given, **types).logits, encoder(**given, **types).last_hidden_state]
    result += [decoder(**given).logits, decoder.generate(**given, max_new_tokens=8, do_sample=False)]
    result += [decoder.generate(**given, max_new_tokens=6, num_beams=3, do_sample=False)]
