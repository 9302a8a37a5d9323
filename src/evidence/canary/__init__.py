"""Runs into which marked values are put, to see whether any of them is written anywhere.

- `marks`: marked values, and the search for them
- `loopback`: a server on this machine that plays the model, a web page and an OTLP receiver
- `agent`: an agent that meets a marked value in every way in
- `trial`: perform such runs and search every byte that they write
"""
