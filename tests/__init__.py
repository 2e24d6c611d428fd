"""Tests of Holdfast, in folders by what they cost."""
