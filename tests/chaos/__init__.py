"""Kills everything while jobs run, and looks whether one was lost or doubled."""
