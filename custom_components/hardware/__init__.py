"""Devices, threads and memory of the machine."""
