"""What `vqueue run` does on its user's side: reads the input, sends pictures, remembers where it was."""
