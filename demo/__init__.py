"""Drawn products, made so that every answer of the system can be judged right or wrong."""
