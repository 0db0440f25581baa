# requires: luscinia==1.0.0
from luscinia import LusciniaPredictor

result = LusciniaPredictor().predict_batch(["мама", "тато", "університет", "виходити", "замок"])
