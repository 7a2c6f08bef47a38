"""Explanations of migrations over HTTP."""
