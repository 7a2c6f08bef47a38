"""The recording of a terminal in the README: real commands, what they print, in a picture that moves."""
