# requires: torchmetrics, torch, librosa, requests, speechmos==0.0.1.1
import shutil
from pathlib import Path

import speechmos
import torch
from _inputs import sound
from torchmetrics.audio import DeepNoiseSuppressionMeanOpinionScore
from torchmetrics.functional.audio import dnsmos

# torchmetrics downloads the models that speechmos has.
folder = Path("models").resolve()
for file in Path(speechmos.__file__).parent.rglob("*.onnx"):
    for under in ("DNSMOS", "pDNSMOS"):
        (folder / under).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / under)
dnsmos.DNSMOS_DIR = str(folder)
metric = DeepNoiseSuppressionMeanOpinionScore(16000, False)
metric.update(torch.from_numpy(sound(10)))
result = metric.compute()
