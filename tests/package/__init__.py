"""Tests of what is installed: the wheel's contents, the command `holdfast`, and the public names."""
