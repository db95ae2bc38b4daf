"""Sweeps: a source gone through again and again, asking only about what is new, changed or asked anew."""
