"""Speech to text: Whisper's graphs, its audio, its decoding, and what is said when."""
