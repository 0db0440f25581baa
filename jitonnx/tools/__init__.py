"""What is made of sessions: the command line, explanations to look at, models inspected and compared, the demo."""
