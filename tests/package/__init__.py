"""Tests of the installed package: the wheel's contents, the command `holdfast`, and the public names."""
