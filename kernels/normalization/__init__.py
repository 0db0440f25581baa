"""LayerNormalization, RMSNormalization, InstanceNormalization, GroupNormalization, MeanVarianceNormalization."""
