"""The commands that show recorded runs: in the terminal, as pages, in a receiver of traces."""
