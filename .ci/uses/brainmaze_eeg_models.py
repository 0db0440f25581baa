# requires: brainmaze-eeg-models==0.1.0
import numpy as np
from brainmaze_eeg_models.seizure import predict_channel_seizure_probability
from brainmaze_eeg_models.spindles import SpindleDetector

random = np.random.default_rng(0)
t = np.arange(400 * 250) / 250
wave = np.cumsum(random.normal(size=len(t))) * 0.1 + random.normal(size=len(t))
wave += 5 * np.sin(2 * np.pi * 13 * t) * (np.sin(2 * np.pi * 0.1 * t) > 0.9)
seizures = [predict_channel_seizure_probability(wave, 250, model) for model in ("modelA", "modelB")]
result = [seizures, SpindleDetector("eeg").detect(wave[None], 250).to_array()]
