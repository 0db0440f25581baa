"""NonMaxSuppression: boxes chosen greedily by score, without those that overlap a chosen one."""
