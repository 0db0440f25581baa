# requires: atspm-detector==1.1.0, duckdb<1.4, pandas<3
import numpy as np
import pandas as pd
from atspm_detector import predict

random = np.random.default_rng(0)
rows = 4000
times = pd.Timestamp("2024-12-03 12:00") + pd.to_timedelta(np.sort(random.uniform(0, 1800, rows)).round(1), unit="s")
events = pd.DataFrame(
    {
        "DeviceId": "d2d0de72-c8aa-45ca-ae1a-8fc626c5afc9",
        "Timestamp": times,
        "EventId": random.choice([1, 8, 10, 81, 82, 82, 81], rows),
        "Parameter": random.integers(1, 9, rows),
    }
)
result = {name: column.to_numpy() for name, column in predict(events).items()}
