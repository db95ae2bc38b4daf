"""Tables as the input of batches: their formats read row by row, and rows turned into jobs."""
