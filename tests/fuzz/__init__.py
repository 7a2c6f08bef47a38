"""Fuzzing: whatever bytes reach an endpoint, a settings file or a parser, the answer is an ordinary one.

`python -m tests.fuzz` (`make fuzz`) mutates the inputs of the corpus for the given time; an input that breaks a
promise is written to the corpus, where `test_corpus` tries it from then on with every run of the tests.
"""
