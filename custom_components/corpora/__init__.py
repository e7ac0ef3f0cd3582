"""The embedded corpora: data that comes with the pack, made here, no file needed."""
