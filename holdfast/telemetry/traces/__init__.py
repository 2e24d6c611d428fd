"""From the events of a thread to spans. Pure: the same events give the same spans, byte for byte."""
