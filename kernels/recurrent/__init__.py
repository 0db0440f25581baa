"""LSTM, GRU and RNN: the recurrent part, all steps in one call."""
