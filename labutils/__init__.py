"""Helpers of Lab 16, reinforcement learning for a small language model."""
